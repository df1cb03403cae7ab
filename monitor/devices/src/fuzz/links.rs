// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that carry data of other programs: the network card, sockets.

use super::{Request, Simple, Target, play, sizes, start};
use crate::Device;
use crate::net::{Net, Wire};
use crate::vsock::{CONNECTIONS, Hub, Listener, Vsock};
use paravane_fuzz::{Input, fuzz};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

struct Card(Simple<Net>);

/// A header, odd or as Linux writes it, and a frame of any content or one for the router.
fn frame(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = input.bytes(12).to_vec();
    out.resize(12, 0);
    if !input.u8().is_multiple_of(4) {
        // A TCP segment in pieces, or a packet.
        out[0] &= 1;
        out[1] = input.pick(&[0u8, 1, 1, 0x81, 3, 4]);
    }
    let length = usize::try_from(input.size() % 70_000).unwrap_or(0);
    if input.u8().is_multiple_of(2) {
        out.extend(input.bytes(64));
    } else {
        out.extend(paravane_net::user::ROUTER);
        out.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
        let said = u16::try_from(length + 20).unwrap_or(u16::MAX);
        out.extend(said.to_be_bytes());
        out.extend([0, 1, 0x40, 0, 64, input.pick(&[6u8, 6, 17, 1]), 0, 0]);
        out.extend([10, 0, 2, 15]);
        out.extend(input.pick(&[[10, 0, 2, 2], [10, 0, 2, 15], [1, 2, 3, 4]]));
        out.extend(input.bytes(40));
    }
    out.resize(out.len() + length, 0x42);
    out
}

impl Target for Card {
    fn queues(&self) -> usize {
        2
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0.device
    }

    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request {
        if queue == 0 {
            return Request {
                out: Vec::new(),
                room: sizes(input),
            };
        }
        Request {
            out: frame(input),
            room: Vec::new(),
        }
    }

    fn host(&mut self, input: &mut Input<'_>) {
        // A frame of the network, or anything.
        let Some(peer) = self
            .0
            .peer
            .as_mut()
            .filter(|_| input.u8().is_multiple_of(2))
        else {
            return self.0.host(input);
        };
        let length = input.size() % 70_000;
        let mut frame = u32::try_from(length).unwrap_or(0).to_be_bytes().to_vec();
        frame.resize(4 + usize::try_from(length).unwrap_or(0), 0x24);
        // The link may be full.
        let _ = peer.write(&frame);
    }
}

#[test]
fn net() {
    fuzz("net", || {
        |bytes| {
            let (ours, peer) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            let link = paravane_net::Link::stream(ours.into(), 1500).unwrap();
            let mut device = Net::new(Wire::Link(link), [2, 0, 0, 0, 0, 1]);
            start(&mut device);
            play(
                &mut Card(Simple {
                    device,
                    queues: 2,
                    peer: Some(peer),
                }),
                bytes,
            );
        }
    });
}

/// The card with the stack. Its published port has connections, and the guest reaches nothing else.
#[test]
fn net_stack() {
    fuzz("net_stack", || {
        |bytes| {
            let config = paravane_net::user::Config {
                // Every address is inside.
                prefix: 0,
                publish: vec!["127.0.0.1:0:80".parse().unwrap()],
                ..paravane_net::user::Config::default()
            };
            let network = paravane_net::user::Network::new(config).unwrap();
            let stream = std::net::TcpStream::connect(network.published()[0].host).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut device = Net::new(Wire::Stack(Box::new(network)), [2, 0, 0, 0, 0, 1]);
            start(&mut device);
            play(
                &mut Card(Simple {
                    device,
                    queues: 2,
                    peer: Some(UnixStream::from(std::os::fd::OwnedFd::from(stream))),
                }),
                bytes,
            );
        }
    });
}

struct Sockets {
    device: Vsock,
    hub: Hub,
    listener: Listener,
    streams: Vec<UnixStream>,
}

impl Target for Sockets {
    fn queues(&self) -> usize {
        2
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.device
    }

    /// A packet: a header, and data as the header says, or not.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request {
        if queue == 0 {
            return Request {
                out: Vec::new(),
                room: vec![input.pick(&[44, 43, 300, 4096, 70_000])],
            };
        }
        let length = usize::from(input.u8());
        let data = input.bytes(length);
        let (source, host) = (
            input.pick(&[3u64, 3, 3, 3, 2, u64::MAX]),
            input.pick(&[2u64, 2, 2, 2, 3]),
        );
        let mut out = source.to_le_bytes().to_vec();
        out.extend(host.to_le_bytes());
        out.extend(u32::from(input.u8() % 4).to_le_bytes());
        out.extend(
            input
                .pick(&[1u32, 1, 1, 2, 1 << 30, u32::MAX])
                .to_le_bytes(),
        );
        let said = if input.u8().is_multiple_of(8) {
            input.u32()
        } else {
            u32::try_from(data.len()).unwrap_or(0)
        };
        out.extend(said.to_le_bytes());
        out.extend(input.pick(&[1u16, 1, 1, 1, 2]).to_le_bytes());
        out.extend(u16::from(input.u8() % 9).to_le_bytes());
        out.extend(u32::from(input.u8() % 5).to_le_bytes());
        out.extend(
            u32::try_from(input.size() & 0xffff_ffff)
                .unwrap_or(0)
                .to_le_bytes(),
        );
        out.extend(
            u32::try_from(input.size() & 0xffff_ffff)
                .unwrap_or(0)
                .to_le_bytes(),
        );
        out.extend(data);
        Request {
            out,
            room: Vec::new(),
        }
    }

    fn host(&mut self, input: &mut Input<'_>) {
        match input.u8() % 5 {
            0 => self
                .streams
                .extend(self.listener.accept(Some(Instant::now()))),
            1 => {
                // Nothing waits for the answer.
                let _ = self.hub.connect(input.u8().into(), Duration::ZERO);
            }
            2 => drop(self.streams.pop()),
            kind => {
                let Some(stream) = self.streams.last_mut() else {
                    return;
                };
                let _ = stream.set_nonblocking(true);
                if kind == 3 {
                    let _ = stream.write(input.bytes(100));
                } else {
                    let _ = stream.read(&mut [0; 4096]);
                }
            }
        }
    }
}

#[test]
fn vsock() {
    fuzz("vsock", || {
        |bytes| {
            let hub = Hub::default();
            let listener = hub.listen(1).unwrap();
            let mut device = Vsock::new(3, &hub, CONNECTIONS).unwrap();
            start(&mut device);
            play(
                &mut Sockets {
                    device,
                    hub,
                    listener,
                    streams: Vec::new(),
                },
                bytes,
            );
        }
    });
}
