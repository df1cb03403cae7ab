// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network of a machine.

use super::descriptors::{self, Shares};
use super::{bus, card};
use crate::heuristic::Heuristic;
use crate::spec::{Net, Reach, Spec};
use crate::store::Machine;
use anyhow::{Context, bail};
use paravane_agent_protocol::Network;
use paravane_bridge::{Bridge, Stack, Wire as BusWire};
use paravane_confine as confine;
use paravane_devices::Model;
use paravane_devices::net::{Later, Net as Card, Wire};
use paravane_net::auto::{self, Auto, Lazy};
use paravane_net::{Publish, passt, publish, tap, user};
use paravane_user_io::stderr::say;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Reports which network a machine got: on standard error, and for `paravane inspect`.
#[derive(Debug, Default)]
pub struct NetworkReport {
    /// Print it on stderr.
    pub verbose: bool,
    /// The file that `inspect` reads.
    pub record: Option<File>,
}

impl NetworkReport {
    /// For a machine with or without a name.
    pub fn new(verbose: bool, machine: Option<&Machine>) -> anyhow::Result<Self> {
        let record = machine.map(Machine::record_network).transpose()?;
        Ok(NetworkReport { verbose, record })
    }

    fn tell(mut self, network: &str, config: Option<&user::Config>) {
        let ports: Vec<String> = config
            .iter()
            .flat_map(|c| &c.publish)
            .map(ToString::to_string)
            .collect();
        tracing::info!(network, ?ports, "network");
        if self.verbose {
            let ports = ports
                .iter()
                .map(|port| format!(", published {port}"))
                .collect::<String>();
            // The terminal may be in raw mode.
            say(&format!("paravane: network: {network}{ports}\r\n"));
        }
        let record = json!({ "is": network, "published": ports }).to_string();
        if let Some(Err(error)) = self
            .record
            .as_mut()
            .map(|file| file.write_all(record.as_bytes()))
        {
            tracing::warn!("what network it is cannot be noted: {error}");
        }
    }
}

/// A machine's network. It ends when this is dropped.
#[derive(Debug, Default)]
pub struct Connected {
    /// The network configuration for the agent, if it needs one.
    pub network: Option<Network>,
    _passt: Kept,
}

/// Keeps passt running, once it has started.
type Kept = Arc<Mutex<Option<passt::Process>>>;

/// passt's process, by the descriptor with which a confined thread can end it.
#[derive(Debug)]
struct PasstProcess(confine::Kept);

impl passt::End for PasstProcess {
    fn kill(&self) {
        self.0.kill();
    }
}

/// What the guest's card on a network is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A card of virtio's.
    Virtio,
    /// A card of a virtual bus.
    Bus,
}

/// A network that runs, on which the guest has no card yet.
#[derive(Debug)]
struct Open {
    wire: Wire,
    /// What it is, for the report.
    name: String,
    /// Its configuration, if it is a user-mode network.
    config: Option<user::Config>,
    kept: Kept,
}

/// Starts the network, or prepares it, and makes the card.
pub fn connect(
    spec: &Spec,
    report: NetworkReport,
    devices: &mut Vec<Model>,
) -> anyhow::Result<Connected> {
    let mac = Card::mac_of(&std::process::id().to_string());
    let (kind, open) = match &spec.net {
        Net::None => return Ok(Connected::default()),
        Net::Bus { bus, device, share } => {
            let (card, device) =
                bus::card(bus, device.as_deref(), *share, spec).context("--net")?;
            report.tell(&format!("device {device} of bus {bus}"), None);
            devices.push(card);
            return Ok(Connected::default());
        }
        Net::Tap(name) => (Kind::Virtio, open_tap(name)?),
        Net::VenetTap(name) => (Kind::Bus, open_tap(name)?),
        Net::Stack(reach) => {
            let config = configuration(spec, *reach)?;
            (Kind::Virtio, open_stack(config).context("--net stack")?)
        }
        Net::Venet(reach) => {
            let config = configuration(spec, *reach)?;
            (Kind::Bus, open_stack(config).context("--net venet")?)
        }
        Net::Passt(reach) => {
            let config = configuration(spec, *reach)?;
            (
                Kind::Virtio,
                open_passt(config, mac).context("--net passt")?,
            )
        }
        Net::VenetPasst(reach) => {
            let config = configuration(spec, *reach)?;
            let open = open_passt(config, mac).context("--net venet-passt")?;
            (Kind::Bus, open)
        }
        Net::User(reach) => {
            return connect_user(configuration(spec, *reach)?, mac, spec, report, devices);
        }
    };
    attach(open, kind, mac, spec, report, devices)
}

/// The network that `--net user` chooses. It may start when the guest first needs it.
fn connect_user(
    mut config: user::Config,
    mac: [u8; 6],
    spec: &Spec,
    report: NetworkReport,
    devices: &mut Vec<Model>,
) -> anyhow::Result<Connected> {
    keep_passt();
    let kept = Kept::default();
    match auto::start(passt::find().as_deref(), &mut config, mac).context("--net user")? {
        Auto::Now(open) => {
            let open = Open {
                name: open.choice.to_string(),
                wire: keep(open.wire, &kept),
                config: Some(config),
                kept,
            };
            attach(open, Kind::Virtio, mac, spec, report, devices)
        }
        Auto::Later(lazy) => {
            let card = Card::later(later(lazy, mac, report, Arc::clone(&kept)), mac);
            devices.push(Model::virtio(tuned(card, spec)));
            Ok(Connected {
                network: Some(addresses(&config)),
                _passt: kept,
            })
        }
    }
}

fn open_tap(name: &str) -> anyhow::Result<Open> {
    Ok(Open {
        wire: Wire::Link(tap::open(name).context("--net")?),
        name: format!("tap {name}"),
        config: None,
        kept: Kept::default(),
    })
}

fn open_stack(mut config: user::Config) -> Result<Open, paravane_net::Error> {
    config.publish = publish::settle(&config.publish)?;
    Ok(Open {
        wire: Wire::Stack(Box::new(user::Network::new(config.clone())?)),
        name: "the stack in this process".to_string(),
        config: Some(config),
        kept: Kept::default(),
    })
}

fn open_passt(mut config: user::Config, mac: [u8; 6]) -> Result<Open, paravane_net::Error> {
    keep_passt();
    config.publish = publish::settle(&config.publish)?;
    let (link, process) = passt::start(Path::new("passt"), &config, mac)?;
    let kept = Kept::default();
    Ok(Open {
        wire: keep(auto::Wire::Passt(link, process), &kept),
        name: "passt".to_string(),
        config: Some(config),
        kept,
    })
}

/// Reports the network, and gives the guest its card.
fn attach(
    open: Open,
    kind: Kind,
    mac: [u8; 6],
    spec: &Spec,
    report: NetworkReport,
    devices: &mut Vec<Model>,
) -> anyhow::Result<Connected> {
    let how = match kind {
        Kind::Virtio => "",
        Kind::Bus => ", by a virtual bus",
    };
    report.tell(&format!("{}{how}", open.name), open.config.as_ref());
    devices.push(match kind {
        Kind::Virtio => Model::virtio(tuned(Card::new(open.wire, mac), spec)),
        Kind::Bus => on_bus(open.wire, mac, spec)?,
    });
    Ok(Connected {
        network: open.config.as_ref().map(addresses),
        _passt: open.kept,
    })
}

/// The configuration of a user-mode network.
fn configuration(spec: &Spec, reach: Reach) -> anyhow::Result<user::Config> {
    let shares = Shares::of(descriptors::limit());
    Ok(user::Config {
        host_loopback: reach.loopback,
        link_local: reach.link_local,
        resolvers: user::host_resolvers(),
        publish: ports(spec)?,
        ack_delay: spec.uses(Heuristic::AckDelay),
        connections: shares.connections,
        datagrams: shares.datagrams,
        ..user::Config::default()
    })
}

/// A card of the virtual bus.
fn on_bus(wire: Wire, mac: [u8; 6], spec: &Spec) -> anyhow::Result<Model> {
    let looks = spec.uses(Heuristic::CardLooks);
    let bridge = match wire {
        Wire::Link(link) => {
            let mut card = BusWire::new(link, mac);
            if !looks {
                card.base.forbid_looks();
            }
            Bridge::wire(card)?
        }
        Wire::Stack(stack) => {
            let mut card = Stack::new(*stack, mac);
            if !looks {
                card.base.forbid_looks();
            }
            Bridge::stack(card)?
        }
    };
    Ok(card::model(bridge, spec))
}

/// The card without the heuristics that are off.
fn tuned(card: Card, spec: &Spec) -> Card {
    if spec.uses(Heuristic::TxDelay) {
        card
    } else {
        card.without_tx_delay()
    }
}

fn later(lazy: Lazy, mac: [u8; 6], report: NetworkReport, kept: Kept) -> Later {
    Later {
        mtu: lazy.mtu(),
        open: Box::new(move || {
            let open = lazy.open(mac);
            report.tell(&open.choice.to_string(), None);
            keep(open.wire, &kept)
        }),
    }
}

/// The card's side of a network, whose process is kept.
fn keep(wire: auto::Wire, kept: &Kept) -> Wire {
    match wire {
        auto::Wire::Stack(network) => Wire::Stack(network),
        auto::Wire::Passt(link, process) => {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
            Wire::Link(link)
        }
    }
}

/// A confined thread can end passt.
fn keep_passt() {
    passt::keep_with(|process| Ok(Box::new(PasstProcess(confine::keep(&process)?))));
}

fn ports(spec: &Spec) -> anyhow::Result<Vec<Publish>> {
    let read = |word: &String| {
        word.parse()
            .map_err(|why| anyhow::anyhow!("--publish {word}: {why}"))
    };
    spec.publish.iter().map(read).collect()
}

fn addresses(config: &user::Config) -> Network {
    Network {
        address: config.guest,
        prefix: config.prefix,
        gateway: config.gateway,
        dns: (!config.resolvers.is_empty()).then_some(config.dns),
        mtu: config.mtu,
    }
}

/// `none`, `user`, `stack`, `passt`, `venet`, `venet-passt`, `tap:NAME`, `venet-tap:NAME`,
/// `bus:NAME[/DEVICE]`. The second to sixth may be followed by `,loopback` and `,link-local`, and
/// the last by `,share`.
pub fn net(word: &str, publish: &[Publish]) -> anyhow::Result<Net> {
    let mut words = word.split(',');
    let kind = words.next().unwrap_or_default();
    let mut reach = Reach::default();
    let known = words.all(|word| match word {
        "loopback" => !std::mem::replace(&mut reach.loopback, true),
        "link-local" => !std::mem::replace(&mut reach.link_local, true),
        _ => false,
    });
    let net = match (kind, word.split_once(':')) {
        // The name may contain commas.
        (_, Some(("tap", name))) => Net::Tap(name.to_string()),
        (_, Some(("venet-tap", name))) => Net::VenetTap(name.to_string()),
        ("user", _) if known => Net::User(reach),
        ("stack", _) if known => Net::Stack(reach),
        ("passt", _) if known => Net::Passt(reach),
        ("venet", _) if known => Net::Venet(reach),
        ("venet-passt", _) if known => Net::VenetPasst(reach),
        (_, Some(("bus", words))) => {
            let place = words.strip_suffix(",share").unwrap_or(words);
            let Some((bus, device)) = bus::network(place) else {
                bail!(
                    "--net {word}: bus:NAME names a bus with one network, bus:NAME/DEVICE a \
                     device on a bus, and with ,share memory is shared with others there"
                )
            };
            Net::Bus {
                bus: bus.to_string(),
                device: device.map(String::from),
                share: place != words,
            }
        }
        ("none", _) if word == kind => Net::None,
        _ => bail!(
            "--net {word}: none, user, stack, passt, venet, venet-passt (the last five also with \
             ,loopback and ,link-local), tap:NAME, venet-tap:NAME and bus:NAME[/DEVICE] (also with \
             ,share) are possible"
        ),
    };
    let wire = matches!(net, Net::Tap(_) | Net::VenetTap(_) | Net::Bus { .. });
    if !publish.is_empty() && (wire || net == Net::None) {
        bail!("--publish needs --net user, stack, passt, venet or venet-passt");
    }
    for (i, port) in publish.iter().enumerate() {
        let same = |other: &Publish| (other.host, other.protocol) == (port.host, port.protocol);
        if port.host.port() != 0 && publish[..i].iter().any(same) {
            bail!(
                "--publish: port {}/{} of the host is given twice",
                port.host,
                port.protocol
            );
        }
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let port = ["80:80".parse().unwrap()];
        let reach = |loopback, link_local| Reach {
            loopback,
            link_local,
        };
        for (word, expected) in [
            ("user", reach(false, false)),
            ("user,loopback", reach(true, false)),
            ("user,link-local", reach(false, true)),
            ("user,loopback,link-local", reach(true, true)),
            ("user,link-local,loopback", reach(true, true)),
        ] {
            assert_eq!(net(word, &port).unwrap(), Net::User(expected), "{word}");
        }
        assert_eq!(net("stack", &port).unwrap(), Net::Stack(Reach::default()));
        let passt = net("passt,link-local", &port).unwrap();
        assert_eq!(passt, Net::Passt(reach(false, true)));
        assert_eq!(net("tap:vm0", &[]).unwrap(), Net::Tap("vm0".to_string()));
        let tap = net("venet-tap:vm0,1", &[]).unwrap();
        assert_eq!(tap, Net::VenetTap("vm0,1".to_string()));
        let venet = net("venet,loopback", &port).unwrap();
        assert_eq!(venet, Net::Venet(reach(true, false)));
        let passt = net("venet-passt,link-local", &port).unwrap();
        assert_eq!(passt, Net::VenetPasst(reach(false, true)));
        let bus = |share| Net::Bus {
            bus: "lan".to_string(),
            device: Some("switch".to_string()),
            share,
        };
        assert_eq!(net("bus:lan/switch", &[]).unwrap(), bus(false));
        assert_eq!(net("bus:lan/switch,share", &[]).unwrap(), bus(true));
        for (word, share) in [("bus:lan", false), ("bus:lan,share", true)] {
            let (bus, device) = ("lan".to_string(), None);
            assert_eq!(net(word, &[]).unwrap(), Net::Bus { bus, device, share });
        }
        for (bad, ports) in [
            ("", &[][..]),
            ("bridge", &[]),
            ("none,loopback", &[]),
            ("user,", &[]),
            ("user,local", &[]),
            ("user,loopback,loopback", &[]),
            ("none,link-local", &[]),
            ("none", &port),
            ("tap:vm0", &port),
            ("venet-tap:vm0", &port),
            ("venet-tap", &[]),
            ("bus:lan/switch", &port),
            ("bus:", &[]),
            ("bus:lan/", &[]),
            ("bus:/switch", &[]),
            ("bus:lan/a b", &[]),
            ("bus:lan/switch,", &[]),
            ("bus:lan/switch,share,share", &[]),
            ("bus:lan/switch,shares", &[]),
            ("bus:,share", &[]),
            ("venet,", &[]),
            ("venet-passt:vm0", &[]),
            ("venet,passt", &[]),
        ] {
            assert!(net(bad, ports).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_of_the_host_is_published_once() {
        let ports = |words: [&str; 2]| words.map(|word| word.parse::<Publish>().unwrap());
        let error = net("user", &ports(["8080:80", "8080:81"])).unwrap_err();
        let expected = "--publish: port 127.0.0.1:8080/tcp of the host is given twice";
        assert_eq!(error.to_string(), expected);
        // Any free port, another protocol, another address.
        for words in [
            ["0:80", "0:81"],
            ["8080:80", "8080:80/udp"],
            ["8080:80", "127.0.0.2:8080:80"],
        ] {
            assert!(net("user", &ports(words)).is_ok(), "{words:?}");
        }
    }

    /// The stored options of machines that an older version made do not mention link-local
    /// addresses and shared memory.
    #[test]
    fn a_stored_network_is_read() {
        let old: Net = serde_json::from_str(r#"{"user":{"loopback":true}}"#).unwrap();
        let expected = Reach {
            loopback: true,
            link_local: false,
        };
        assert_eq!(old, Net::User(expected));
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Net>(&text).unwrap(), old);
        let old: Net = serde_json::from_str(r#"{"bus":{"bus":"lan","device":"dev"}}"#).unwrap();
        assert!(matches!(old, Net::Bus { share: false, .. }));
    }
}
