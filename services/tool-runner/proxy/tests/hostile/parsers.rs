//! The parsers under any bytes.

use belay_network::Host;
use belay_proxy::{HeadState, Hello, HostHeader, Target, head_state, read_client_hello, read_head, read_tool_head};
use proptest::prelude::*;

use crate::hello::{message, records, server_name};

const LIMIT: usize = 64 << 10;

proptest! {
    #[test]
    fn no_bytes_make_the_hello_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_client_hello(&bytes, LIMIT);
        let _ = read_client_hello(&records(&bytes.clone(), 40), LIMIT);
        let mut started = vec![1, 0, 0, bytes.len() as u8];
        started.extend(&bytes);
        let _ = read_client_hello(&records(&started, 100), LIMIT);
    }

    /// A hello that is damaged at one place names the same host, another one, or none: the name is among its bytes.
    #[test]
    fn a_damaged_hello_names_what_it_has(at in 0_usize..200, byte in any::<u8>(), size in 1_usize..300) {
        let mut message = message(&[(10, vec![0, 2, 0, 29]), server_name(&["tls.example.com"])]);
        if let Some(place) = message.get_mut(at) {
            *place = byte;
        }
        if let Hello::Name(host) = read_client_hello(&records(&message, size), LIMIT) {
            let text = String::from_utf8_lossy(&message).to_ascii_lowercase();
            prop_assert!(text.contains(host.as_str()));
        }
    }

    /// However it is spread, and however little of it has arrived, it is read in one way.
    #[test]
    fn a_hello_is_read_the_same_in_all_records(size in 1_usize..200, cut in 0_usize..400) {
        let bytes = records(&message(&[server_name(&["a.example.com"])]), size);
        let host = Hello::Name(Host::parse("a.example.com").unwrap());
        prop_assert_eq!(read_client_hello(&bytes, LIMIT), host);
        let cut = cut.min(bytes.len() - 1);
        prop_assert_eq!(read_client_hello(&bytes[..cut], LIMIT), Hello::Incomplete);
    }

    #[test]
    fn no_bytes_make_the_head_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = head_state(&bytes, 0, 200);
        let _ = read_head(&bytes, 10, HostHeader::Named);
        let _ = read_tool_head(&bytes, 10);
        let _ = read_head(&[&b"GET "[..], &bytes, b"\r\n\r\n"].concat(), 10, HostHeader::Named);
    }

    /// A target that is accepted names one host, in the place where everyone looks for it.
    #[test]
    fn an_accepted_target_names_one_host(target in "(http://)?[-a-z0-9.@:/?#%\\[\\]\\\\ ]{0,40}", method in "GET|CONNECT") {
        let text = format!("{method} {target} HTTP/1.0\r\n\r\n");
        if let Ok(head) = read_head(text.as_bytes(), 10, HostHeader::Named) {
            let spelled = |host: &Host, port: u16, default: u16| {
                [format!("{host}:{port}"), format!("{host}:{port:0>5}"), format!("{host}")]
                    .into_iter()
                    .take(if port == default { 3 } else { 2 })
                    .collect::<Vec<_>>()
            };
            match head.target {
                Target::Tunnel(host, port) => {
                    let (name, digits) = target.split_once(':').unwrap();
                    prop_assert_eq!((name, digits.parse()), (host.as_str(), Ok(port)));
                }
                Target::Absolute(host, port, path) => {
                    let rest = target.strip_prefix("http://").unwrap();
                    let end = rest.find(['/', '?']).unwrap_or(rest.len());
                    let authority = &rest[..end];
                    let name = authority.split(':').next().unwrap();
                    prop_assert_eq!(name, host.as_str());
                    prop_assert!(authority == name || authority.split_once(':').unwrap().1.parse() == Ok(port));
                    prop_assert!(!spelled(&host, port, 80).is_empty() && path.starts_with('/'));
                }
                Target::AbsoluteTls(..) => prop_assert!(false, "a command does not ask for TLS"),
                Target::Path(path) => prop_assert_eq!(path, target),
            }
        }
    }

    /// A head arrives in any pieces.
    #[test]
    fn a_head_ends_at_the_same_place(pieces in prop::collection::vec(1_usize..20, 1..20)) {
        let text = b"GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\nrest of it";
        let end = text.len() - b"rest of it".len();
        let (mut from, mut arrived) = (0, 0);
        for piece in pieces {
            arrived = (arrived + piece).min(text.len());
            let expected = if arrived >= end { HeadState::Complete(end) } else { HeadState::Incomplete };
            prop_assert_eq!(head_state(&text[..arrived], from, 1000), expected);
            if arrived >= end {
                break;
            }
            from = arrived;
        }
    }
}
