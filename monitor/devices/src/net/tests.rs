// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card with the stack, between a driver that is played by hand and sockets of this host.

use super::*;
use crate::test_guest::{FREE, Guest};
use crate::{Reactor, Wake};
use paravane_net::user::Config;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// Size of a buffer of the driver.
const BUFFER: u32 = 4096;
const BUFFERS: u64 = 64;
/// Where the driver's frames lie.
const FRAMES: u64 = FREE + BUFFERS * BUFFER as u64;

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A machine with the card.
struct Machine {
    guest: Guest,
    driver: Driver,
    net: Net,
    bell: Arc<Bell>,
    reactor: Arc<Reactor>,
    /// Frames of the driver since the start.
    sent: u64,
}

impl Machine {
    fn new(config: Config, features: u64) -> Machine {
        Machine::with(config, features, |net| net)
    }

    fn with(config: Config, features: u64, tune: fn(Net) -> Net) -> Machine {
        let network = paravane_net::user::Network::new(config).unwrap();
        let mut net = tune(Net::new(Wire::Stack(Box::new(network)), [2, 0, 0, 0, 0, 1]));
        assert_eq!(features & !net.features(), 0);
        let (reactor, bell) = (Reactor::new().unwrap(), Arc::new(Bell::default()));
        let waker = reactor.waker(0, Arc::clone(&bell) as Arc<dyn Wake>);
        net.start(&waker).unwrap();
        let thread = (Arc::clone(&reactor), Arc::clone(&bell));
        std::thread::spawn(move || thread.0.run(|_| thread.1.wake()));
        let guest = Guest::new(2);
        let mut driver = guest.driver(features | 1 << 32);
        net.activate(&mut driver).unwrap();
        net.woken(&mut driver).unwrap();
        Machine {
            guest,
            driver,
            net,
            bell,
            reactor,
            sent: 0,
        }
    }

    fn published(&self) -> std::net::SocketAddr {
        let Stage::Up(Wire::Stack(network)) = &self.net.stage else {
            panic!("no stack");
        };
        network.published()[0].host
    }

    fn add_buffers(&mut self, from: u64, count: u64) {
        for index in from..from + count {
            let at = FREE + index * u64::from(BUFFER);
            self.guest.offer(RX, &[(at, BUFFER, true)]);
        }
    }

    /// Puts a frame into the queue, without a notification.
    fn queue(&mut self, header: [u8; HEADER], frame: &[u8]) {
        let bytes = [&header[..], frame].concat();
        let at = FRAMES + self.sent % 4 * 70_000;
        self.guest.put(at, &bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        self.guest.offer(TX, &[(at, length, false)]);
        self.sent += 1;
    }

    fn notify(&mut self, queue: usize) {
        self.net.notified(&mut self.driver, queue).unwrap();
        self.driver.end_round();
    }

    /// Does what the device's thread does, until the driver gets frames.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let begun = Instant::now();
        loop {
            let used = self.guest.used(RX);
            if !used.is_empty() {
                return used
                    .into_iter()
                    .map(|(head, length)| self.taken(head, length))
                    .collect();
            }
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            if self.bell.0.swap(false, Ordering::SeqCst) {
                self.net.woken(&mut self.driver).unwrap();
                self.driver.end_round();
            }
        }
    }

    fn taken(&self, head: u16, length: u32) -> Vec<u8> {
        let at = FREE + u64::from(head) % BUFFERS * u64::from(BUFFER);
        self.guest.get(at, usize::try_from(length).unwrap())
    }

    fn interrupts(&self) -> usize {
        self.guest.count.used.load(Ordering::SeqCst)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.reactor.stop();
    }
}

/// "Who has 10.0.2.2?"
fn question() -> Vec<u8> {
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
    frame.extend([10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2]);
    frame
}

/// A segment from port 80 of the guest to the sender of `frame`, a segment.
fn reply(frame: &[u8], flags: u8, data: &[u8]) -> Vec<u8> {
    let at = |range: std::ops::Range<usize>| &frame[range];
    let mut out = [at(6..12), at(0..6), &[8, 0, 0x45, 0]].concat();
    out.extend(u16::try_from(40 + data.len()).unwrap().to_be_bytes());
    out.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    out.extend([at(30..34), at(26..30), at(36..38), at(34..36)].concat());
    // Acknowledges all, and continues after what the segment acknowledges.
    let number = |range| u32::from_be_bytes(at(range).try_into().unwrap());
    let length = u32::try_from(frame.len()).unwrap() - 34 - u32::from(frame[46] >> 4) * 4;
    let syn = u32::from(frame[47] & 2 != 0);
    out.extend(number(42..46).to_be_bytes());
    out.extend((number(38..42) + length + syn).to_be_bytes());
    out.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    out.extend(data);
    out
}

fn publishing() -> Config {
    Config {
        publish: vec!["127.0.0.1:0:80".parse().unwrap()],
        ..Config::default()
    }
}

#[test]
fn a_batch_of_frames_is_one_interrupt() {
    let mut machine = Machine::new(Config::default(), 0);
    machine.add_buffers(0, BUFFERS);
    (0..20).for_each(|_| machine.queue([0; HEADER], &question()));
    machine.notify(TX);
    // None for frames that were sent: few and small.
    assert_eq!(machine.interrupts(), 1);
    assert_eq!(machine.guest.used(TX).len(), 20);
    let answers = machine.guest.used(RX);
    assert_eq!(answers.len(), 20);
    let answer = machine.taken(answers[0].0, answers[0].1);
    assert_eq!(
        &answer[HEADER + 12..HEADER + 22],
        [8, 6, 0, 1, 8, 0, 6, 4, 0, 2]
    );
    // Later, if there is no other reason for an interrupt.
    let begun = Instant::now();
    while machine.interrupts() == 1 {
        assert!(begun.elapsed() < PATIENCE, "the driver is not told");
        if machine.bell.0.swap(false, Ordering::SeqCst) {
            machine.net.woken(&mut machine.driver).unwrap();
        }
    }
}

/// The driver waits until all of its frames are sent, whatever their contents.
#[test]
fn what_is_no_frame_is_reported_too() {
    let mut machine = Machine::new(Config::default(), 0);
    machine.guest.put(FRAMES, &[0; 5]);
    machine.guest.offer(TX, &[(FRAMES, 5, false)]);
    machine.notify(TX);
    assert_eq!(machine.guest.used(TX).len(), 1);
    let begun = Instant::now();
    while machine.interrupts() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the driver is not told");
        if machine.bell.0.swap(false, Ordering::SeqCst) {
            machine.net.woken(&mut machine.driver).unwrap();
        }
    }
}

/// The driver has no buffers, so that there is no other reason for an interrupt.
#[test]
fn without_the_heuristic_a_frame_is_reported_at_once() {
    for (tune, interrupts) in [(Net::without_tx_delay as fn(Net) -> Net, 1), (|net| net, 0)] {
        let mut machine = Machine::with(Config::default(), 0, tune);
        machine.queue([0; HEADER], &question());
        machine.notify(TX);
        assert_eq!(machine.interrupts(), interrupts);
    }
}

/// A driver without buffers gets its frames when it adds buffers. Until then it sends little.
#[test]
fn frames_wait_for_buffers() {
    let mut machine = Machine::new(Config::default(), 0);
    let mut taken = 0;
    for _ in 0..100 {
        (0..4).for_each(|_| machine.queue([0; HEADER], &question()));
        machine.notify(TX);
        taken += machine.guest.used(TX).len();
        if taken < usize::try_from(machine.sent).unwrap() {
            break;
        }
    }
    // This number of answers waits, and no frame is taken that needs another.
    assert_eq!(taken, 256);
    assert_eq!(machine.guest.used(RX).len(), 0);
    machine.add_buffers(0, BUFFERS);
    machine.notify(RX);
    assert_eq!(
        machine.guest.used(RX).len(),
        usize::try_from(BUFFERS).unwrap()
    );
    // The stack has room again: another round.
    assert!(machine.bell.0.swap(false, Ordering::SeqCst));
    machine.net.woken(&mut machine.driver).unwrap();
    assert_eq!(
        machine.guest.used(TX).len(),
        usize::try_from(machine.sent).unwrap() - taken
    );
}

#[test]
fn a_connection_from_the_host_and_its_bytes() {
    for features in [0, F_GUEST_CSUM] {
        let mut machine = Machine::new(publishing(), features);
        machine.add_buffers(0, BUFFERS);
        machine.queue([0; HEADER], &question());
        machine.notify(TX);
        machine.frames();
        let mut client = TcpStream::connect(machine.published()).unwrap();
        client.write_all(b"request").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut frames = machine.frames();
        // The stack asks for the address.
        while frames[0][HEADER + 12..HEADER + 14] == [8, 6] {
            let mut answer = question();
            answer[21] = 2;
            machine.queue([0; HEADER], &answer);
            machine.notify(TX);
            frames = machine.frames();
        }
        let syn = &frames[0][HEADER..];
        assert_eq!((syn[47] & 0x12, &syn[36..38]), (2, &[0, 80][..]));
        // A partial checksum for a driver that completes it.
        let flags = frames[0][0];
        assert_eq!(flags, if features == 0 { 0 } else { 1 });
        machine.queue([0; HEADER], &reply(syn, 0x12, b""));
        machine.notify(TX);
        let mut got: Vec<u8> = Vec::new();
        let mut last = syn.to_vec();
        while got != b"request" {
            for frame in machine.frames() {
                last = frame[HEADER..].to_vec();
                got.extend(&last[34 + usize::from(last[46] >> 4) * 4..]);
            }
        }
        machine.queue([0; HEADER], &reply(&last, 0x18, b"answer"));
        machine.notify(TX);
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}

/// A connection of the guest to a service of the host, whose data comes in one segment of 50 kB
/// with a header that requires to cut it.
#[test]
fn a_long_segment_is_taken_whole_from_a_driver_that_may_send_it() {
    for (features, whole) in [(0, false), (F_CSUM | F_HOST_TSO4, true)] {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config {
            host_loopback: true,
            ..Config::default()
        };
        let mut machine = Machine::new(config, features);
        machine.add_buffers(0, BUFFERS);
        machine.queue([0; HEADER], &question());
        machine.notify(TX);
        machine.frames();
        // A segment as the router would send it, to be replied to.
        let mut frame = [[2, 0, 0, 0, 0, 1], [2, 80, 86, 77, 0, 1]].concat();
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 2, 2, 10, 0, 2, 15]);
        frame.extend(service.local_addr().unwrap().port().to_be_bytes());
        frame.extend([
            0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0, 9, 0x50, 0x10, 255, 255, 0, 0, 0, 0,
        ]);
        machine.queue([0; HEADER], &reply(&frame, 2, b""));
        machine.notify(TX);
        let accepted = machine.frames().pop().unwrap();
        assert_eq!(accepted[HEADER + 47], 0x12, "SYN and ACK");
        let (mut stream, _) = service.accept().unwrap();
        let data = vec![7; 50_000];
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&[1, 1, 54, 0, 0xb4, 5]);
        machine.queue(header, &reply(&accepted[HEADER..], 0x18, &data));
        machine.notify(TX);
        let mut got = vec![0; data.len()];
        stream
            .set_read_timeout(Some(Duration::from_millis(if whole {
                20_000
            } else {
                300
            })))
            .unwrap();
        assert_eq!(stream.read_exact(&mut got).is_ok() && got == data, whole);
    }
}
