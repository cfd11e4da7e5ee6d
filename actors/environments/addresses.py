"""Which network addresses a site may be served from: pure rules, asked by the proxy for every connection."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")


def networks(written: tuple[str, ...]) -> tuple[Network, ...]:
    """Networks as `10.0.0.0/8`, or single addresses. Raises ValueError for what is neither."""
    return tuple(ip_network(one) for one in written)


def may_reach(host: str, address: str, private: tuple[Network, ...]) -> bool:
    """Whether a site named `host` may be reached at `address`, one of those that the name resolves to.

    Anything on the public internet is; a private, loopback, link-local or otherwise special address only where the host
    is that very address, where it is `localhost` and means this machine, or where it lies in one of the `private`
    networks. A name that says otherwise is taken for an attack (DNS rebinding) or for a mistake.

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
    """The IPv4 address that an IPv6 one stands for, where it stands for one."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _public(address: Address) -> bool:
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    )
