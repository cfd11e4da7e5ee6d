"""Words for generated pages: common words of pages, names, and strings that nobody has seen before."""

from random import Random

_COMMON = """
    about account action active add added address after all also amount and any apply archive area article arrow
    ask attach author available away back bag balance bank banner base basket before below best between big bill
    black blog blue board body bold book bottom box brand bread bright bring brown browse button buy by cable call
    camera cancel card care cart case cash category center change chat check checkout choose city class clear click
    close cloud code coffee color column comment compare complete confirm contact content continue copy corner cost
    count country coupon cover create credit current customer daily dark data date day deal delete deliver delivery
    desk detail device different digital discount display document done door double down download draft drive drop
    each easy edit email empty end enter entry error event every exit expand extra fast favourite feature field file
    fill filter final find first flat folder follow food form forward found free fresh friend from front full garden
    general get gift glass go good grand gray green group guide hand header heart heavy height help here hidden high
    home hour house icon image important in inbox info input inside item join keep key kitchen label lamp language
    large last late latest leather left length less letter level light like line link list little live load local
    location lock log login long look loud low mail main make manage map mark market match material maximum medium
    member memory menu message metal middle minimum minute mobile mode model money month more morning most mouse move
    much music my name near new news next night no none normal north not note notebook notice now number of offer
    office ok old on one online only open option or orange order other out outdoor over overview own pack page paid
    paint paper part password past path pay payment pen people percent phone photo pick picture pink place plain plan
    plant plastic play please plus point popular post power press preview previous price print private product
    profile public purple quality quantity question quick quiet rate rating read ready real recent red reference
    refund register related remove rename repeat reply report reset result return review right river road room round
    row safe sale same save search season second section secure see select sell send sent series service set settings
    shape share shelf ship shipping shoe shop short show side sign silver similar simple single site size small smart
    snow social soft sold sort sound source south space special sport spring square stand standard star start state
    status stay step stock stone stop store story street strong style subject submit subtotal success summer sun
    support sure switch table tall task tax team text thank that the their this three ticket time tiny title to today
    toggle tool top total town track train travel tree true try turn two type under undo unit up update upgrade
    upload use user value video view visit wait wall warm warning was watch water wave week weight welcome west when
    white wide width window winter wish with wood wool word work world write yard year yellow yes you your zip zone
    """
COMMON = tuple(_COMMON.split())

_NAMES = """
    Ada Adam Agnes Alan Alba Alec Alice Amir Amy Ana Anders Anna Ari Arno Aya Bea Ben Boris Bruno Cara Carl Chen Clara
    Cora Dana David Diego Dina Dora Ed Elena Eli Ella Emil Emma Erik Eva Felix Finn Flora Frank Gina Greta Hana Hans
    Hugo Ida Igor Ines Ivan Jack Jana Joe John Jonas Juan Judy Julia Kai Karl Kate Ken Kim Lara Lars Lea Leo Lila Lina
    Lisa Luca Lucy Maja Marc Maria Mary Max Maya Mia Mila Nadia Nick Nina Noah Nora Olga Omar Oscar Otto Paul Petra Pia
    Rafael Ray Rosa Ruth Sam Sara Sean Sofia Stan Sven Tara Tim Tina Tom Uma Vera Victor Wanda Will Yara Yuri Zoe
    """
NAMES = tuple(_NAMES.split())

_CONSONANTS = "bcdfghjklmnpqrstvwz"
_VOWELS = "aeiou"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"


def pseudo_word(random: Random) -> str:
    """A pronounceable word that means nothing: `velomi`, `trastin`."""
    return "".join(_syllable(random) for _ in range(random.choice((1, 2, 2, 3, 3))))


def _syllable(random: Random) -> str:
    ending = random.choice(("", "", "n", "r", "l", "s", "t"))
    return random.choice(_CONSONANTS) + random.choice(_VOWELS) + ending


def random_string(random: Random) -> str:
    """Characters without any pattern: `x9Qv`, `Zpt`, `40817`."""
    alphabet = random.choice(
        (
            _LETTERS,
            _LETTERS,
            _LETTERS + _LETTERS.upper(),
            _LETTERS + _DIGITS,
            _DIGITS,
            _LETTERS + _LETTERS.upper() + _DIGITS,
        )
    )
    return "".join(random.choice(alphabet) for _ in range(random.randint(1, 7)))


def word(random: Random, extra: tuple[str, ...] = ()) -> str:
    """One word of any kind; `extra` are words of the sites that will be met."""
    draw = random.random()
    if extra and draw < 0.3:
        return random.choice(extra)
    if draw < 0.55:
        return _cased(random, random.choice(COMMON))
    if draw < 0.62:
        return random.choice(NAMES)
    if draw < 0.85:
        return _cased(random, pseudo_word(random))
    return random_string(random)


def phrase(random: Random, most: int = 5, extra: tuple[str, ...] = ()) -> str:
    """One to `most` words."""
    return " ".join(word(random, extra) for _ in range(random.randint(1, most)))


def money(random: Random) -> str:
    """A price such as `$12.90`."""
    return (
        f"${random.randint(1, 400)}.{random.choice((0, 5, 9, 49, 50, 90, 95, 99, random.randint(0, 99))):02d}"
    )


def number(random: Random) -> str:
    """A count, a year, an order number."""
    return str(random.randint(0, 10 ** random.randint(1, 6)))


def _cased(random: Random, text: str) -> str:
    draw = random.random()
    return text if draw < 0.5 else text.capitalize() if draw < 0.95 else text.upper()
