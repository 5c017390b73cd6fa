//! The addresses that no name may lead to: those of this machine, its networks, and what stands for them.

// Of `core`: addresses are values, and what `std::net` adds are sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ranges of IPv4: first address, length of the prefix, name.
const V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a provider's network (CGNAT)"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // The metadata services of clouds are here.
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    // Azure's, where its machines ask for their settings.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own service"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    // Oracle's cloud has its metadata service here, too.
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a network for benchmarks"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved or broadcast"),
];

/// The ranges of IPv6.
const V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "this network"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    // RFC 8215: locally defined translation.
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "an address of IPv4 (NAT64)"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private network (ULA)"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private network (site-local)"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// The range of an address that no host may lead to, in words; `None` for every other address.
///
/// An address of IPv6 that stands for one of IPv4 (mapped, compatible, NAT64, 6to4, Teredo) is judged as what it stands for; the well-known prefix of NAT64 is
/// closed whatever it stands for, because the network in between decides where it leads. Ranges for documentation are not closed: networks of tests use them.
pub fn closed_range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => closed_v4(address),
        IpAddr::V6(address) => closed_v6(address),
    }
}

fn closed_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let holds = |first: Ipv4Addr, length: u32| (bits ^ first.to_bits()) >> (32 - length) == 0;
    V4.iter().find(|(first, length, _)| holds(*first, *length)).map(|(_, _, name)| *name)
}

fn closed_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let holds = |first: Ipv6Addr, length: u32| (bits ^ first.to_bits()) >> (128 - length) == 0;
    let listed = V6.iter().find(|(first, length, _)| holds(*first, *length)).map(|(_, _, name)| *name);
    let [a, b, c, _, _, _, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    listed.or_else(|| match (a, b) {
        (0x64, 0xff9b) => Some("an address of IPv4 (NAT64)"),
        (0x2002, _) => closed_v4(v4(b, c)),
        // Teredo: the client's address, inverted.
        (0x2001, 0) => closed_v4(v4(!g, !h)),
        _ if holds(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 96) || holds(Ipv6Addr::UNSPECIFIED, 96) => {
            closed_v4(v4(g, h))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_machine_and_its_networks_are_closed() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.77.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.192",
            "198.19.255.255",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(closed_range(address.parse().unwrap()).is_some(), "{address}");
        }
    }

    #[test]
    fn other_addresses_and_those_of_documentation_are_open() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.1",
            "168.63.129.17",
            "192.0.1.1",
            "192.0.2.1",
            "198.17.0.1",
            "198.20.0.1",
            "198.51.100.1",
            "203.0.113.80",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:db8::1",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
            "2001:4860:4860::8888",
        ] {
            assert_eq!(closed_range(address.parse().unwrap()), None, "{address}");
        }
    }
}
