// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments with which passt is started, and the cases in which it is not.

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

#[test]
fn ports_are_named_as_passt_wants_them() {
    let publish = ["8080:80", "0.0.0.0:53:5353/udp"]
        .map(|p| p.parse().unwrap())
        .to_vec();
    let words = arguments(&Config {
        publish,
        ..Config::default()
    })
    .join(" ");
    assert!(words.contains("--tcp-ports 127.0.0.1/8080:80"), "{words}");
    assert!(words.contains("--udp-ports 0.0.0.0/53:5353"), "{words}");
    assert!(words.contains("--map-host-loopback none"), "{words}");
    assert!(words.contains("--address 10.0.2.15"), "{words}");
}

#[test]
fn without_ports_none_are_forwarded() {
    let words = arguments(&Config {
        host_loopback: true,
        ..Config::default()
    })
    .join(" ");
    assert!(
        words.contains("--tcp-ports none") && words.contains("--udp-ports none"),
        "{words}"
    );
    assert!(words.contains("--map-host-loopback 10.0.2.2"), "{words}");
}

#[test]
fn what_it_cannot_do_is_known_before() {
    let with = |publish: &str, resolvers: &str| {
        unfit(&Config {
            publish: publish.split(' ').map(|p| p.parse().unwrap()).collect(),
            resolvers: resolvers.split(' ').map(|r| r.parse().unwrap()).collect(),
            ..Config::default()
        })
    };
    assert_eq!(unfit(&Config::default()), None);
    assert_eq!(with("80:80", "192.0.2.1:53"), None);
    assert!(with("0:80", "192.0.2.1:53").unwrap().contains("ports"));
    for (resolvers, part) in [
        ("127.0.0.53:53", "loopback"),
        ("0.0.0.0:53", "loopback"),
        ("[2001:db8::1]:53 127.0.0.53:53", "loopback"),
        ("[2001:db8::1]:53", "IPv4 name servers only"),
        ("[::1]:53", "IPv4 name servers only"),
    ] {
        let why = with("80:80", resolvers).unwrap();
        assert!(why.contains(part), "{resolvers}: {why}");
    }
    assert_eq!(with("80:80", "[2001:db8::1]:53 192.0.2.1:53"), None);
}

/// passt has one entry for each number and protocol, whatever the host's address is.
#[test]
fn one_number_leads_to_one_port() {
    let with = |publish: &[&str]| {
        unfit(&Config {
            publish: publish.iter().map(|p| p.parse().unwrap()).collect(),
            ..Config::default()
        })
    };
    for fits in [
        ["0.0.0.0:80:80", "127.0.0.1:81:8080"],
        ["0.0.0.0:80:80", "127.0.0.1:80:81/udp"],
        ["192.0.2.1:80:80", "127.0.0.1:80:80"],
    ] {
        assert_eq!(with(&fits), None, "{fits:?}");
    }
    for unfit in [
        ["0.0.0.0:80:80", "127.0.0.1:80:8080"],
        ["127.0.0.1:80:8080/udp", "[::]:80:80/udp"],
    ] {
        assert!(with(&unfit).is_some_and(|why| why.contains("one port")));
    }
}

/// Without a name server, passt would lead queries to the host's loopback.
#[test]
fn names_are_led_only_to_a_name_server() {
    for (resolvers, leads) in [(vec![], false), (vec!["192.0.2.1:53"], true)] {
        let resolvers = resolvers.iter().map(|r| r.parse().unwrap()).collect();
        let words = arguments(&Config {
            resolvers,
            ..Config::default()
        });
        assert_eq!(words.contains(&"--dns-forward".to_string()), leads);
    }
}

#[test]
fn a_program_that_ends_is_an_error_in_a_line() {
    for (program, part) in [
        ("/bin/false", "it ended at once"),
        ("/no/such/passt", "/no/such/passt"),
    ] {
        let error = start(Path::new(program), &Config::default(), MAC)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn one_that_never_starts_ends_with_its_maker() {
    let prepared = prepare(Path::new("/bin/true"), &Config::default()).unwrap();
    let Prepared {
        mut process, go, ..
    } = prepared;
    assert!(process.child.try_wait().unwrap().is_none());
    drop(go);
    assert!(!process.child.wait().unwrap().success());
}

#[test]
fn the_question_is_for_the_gateway() {
    let frame = question(MAC, &Config::default());
    assert_eq!(frame.len(), 42);
    assert!(frame.ends_with(&Ipv4Addr::new(10, 0, 2, 2).octets()));
}

/// A router's advertisement comes before the answer, or in place of it.
#[test]
fn only_an_answer_to_the_question_is_an_answer() {
    let config = Config::default();
    let mut advertisement = vec![0x33; 60];
    advertisement[12..14].copy_from_slice(&[0x86, 0xdd]);
    let reply = question(MAC, &config);
    for (frames, expected) in [
        (vec![&advertisement, &reply], true),
        (vec![&reply], true),
        (vec![&advertisement, &advertisement], false),
    ] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for frame in frames {
            let length = u32::try_from(frame.len()).unwrap();
            theirs.write_all(&length.to_be_bytes()).unwrap();
            theirs.write_all(frame).unwrap();
        }
        // The question can be sent, and then the other end is closed.
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut link = stream(OwnedFd::from(ours), &config).unwrap();
        assert_eq!(answered(&mut link, &config, MAC).unwrap(), expected);
    }
}
