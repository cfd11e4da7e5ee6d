"""Operations on a whole run: create, open, fork, change, archive, import, repair."""
