"""Which network addresses a site may be served from: pure rules that the proxy applies to every connection."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")


def networks(written: tuple[str, ...]) -> tuple[Network, ...]:
    """Parse networks such as `10.0.0.0/8`, or single addresses. Raises ValueError for anything else."""
    return tuple(ip_network(one) for one in written)


def may_reach(host: str, address: str, private: tuple[Network, ...]) -> bool:
    """Whether a site named `host` may be reached at `address`, one of the addresses that the name resolves to.

    Any public address is allowed. A private, loopback, link-local or otherwise special address is allowed only where the
    host is that very address, where it is `localhost` and means this machine, or where it lies in one of the `private`
    networks. Any other name with such an address is treated as an attack (DNS rebinding) or a mistake.

    >>> may_reach("shop.example", "93.184.215.14", ())
    True
    >>> may_reach("shop.example", "::ffff:169.254.169.254", ())
    False
    """
    meant = _plain(ip_address(address.split("%")[0]))
    named = _literal(host)
    if named is not None:
        return _plain(named) == meant
    if host == "localhost" or host.endswith(".localhost"):
        return meant.is_loopback
    return _public(meant) or any(meant.version == network.version and meant in network for network in private)


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one represents, if it represents one."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _public(address: Address) -> bool:
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    )
