// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vbusd that was taken over, or a neighbour on the bus, can send the guest any answers and
//! frames by its cards and disks, and can do nothing else to it.

use crate::hostile_vbusd::{HostileVbusd, Script, Theirs};
use crate::model::Model;
use crate::test_guest::{BUFFERS, Guest};
use crate::{Bridge, Far, FarDisk};
use paravane_devices::OwnDevice;
use paravane_vbus::{Device, Kind};
use paravane_vbus_client::protocol::{Reply, encode};
use paravane_vbus_client::{Client, Error, Options};
use paravane_vbus_shm::layout::{self, BlockGeometry, BlockRequest};
use paravane_vbus_shm::north::Buffer;
use std::mem::offset_of;
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const SECTORS: u64 = 128;

fn guest(device: Box<dyn Device>) -> Guest {
    Guest::new(Bridge::new("bus", vec![Model::Plain("far", device)]).unwrap())
}

/// A guest with a card, and the device at the other end.
fn card(vbusd: &HostileVbusd) -> (Guest, Theirs) {
    let script = Script {
        interface: "virtual-ethernet".to_string(),
        result: MAC.to_vec(),
        caps: 0,
        odd: None,
    };
    let (far, theirs) = vbusd.join(script, || Far::join(&vbusd.socket, "lan", "dev"));
    let mut guest = guest(Box::new(far.unwrap()));
    guest.up(0);
    guest.post(4, 64);
    (guest, theirs.unwrap())
}

fn passes(guest: &mut Guest) {
    guest.bridge.serve(true, 1);
}

/// A neighbour's frame arrives unchanged, without flags that the guest has not agreed to. A frame
/// that does not fit is lost.
#[test]
fn a_frame_of_the_bus_is_bytes_in_a_buffer_and_nothing_else() {
    let vbusd = HostileVbusd::start();
    let (mut guest, mut theirs) = card(&vbusd);
    for flags in [0, 1, 0xff, u32::MAX] {
        let frame = [&MAC[..], &[0x33; 54]].concat();
        theirs.fill(&frame, 60, flags);
        passes(&mut guest);
        assert_eq!(guest.received(), [(frame, 0)], "{flags:#x}");
        guest.post(1, 64);
    }
    theirs.fill(&[0x44; 9000], 9000, 0);
    theirs.fill(&[0x55; 60], 60, 0);
    for _ in 0..3 {
        passes(&mut guest);
    }
    let got = guest.received();
    assert_eq!(got.last(), Some(&(vec![0x55; 60], 0)));
    assert!(
        got.iter()
            .all(|(bytes, _)| bytes.len() <= 64 && bytes[..] != [0x44; 64])
    );
}

/// The connection ends, the guest's frames wait, and its buffers are as they were.
#[test]
fn a_breach_of_vbusd_s_ends_its_connection_and_touches_no_guest() {
    let vbusd = HostileVbusd::start();
    let breaches: [fn(&mut Theirs); 4] = [
        |theirs| theirs.fill(&[0x33; 60], 9217, 0),
        |theirs| theirs.fill(&[0x33; 60], u32::MAX, 0),
        // An owner that is no side.
        |theirs| {
            let (at, bytes) = theirs.ring(0);
            for place in (at + 448..at + bytes).step_by(32) {
                theirs.write(place + 28, &7_u32.to_le_bytes());
            }
        },
        Theirs::hang_up,
    ];
    for breach in breaches {
        let (mut guest, mut theirs) = card(&vbusd);
        breach(&mut theirs);
        theirs.ring_bell();
        passes(&mut guest);
        theirs.fill(&[0x44; 60], 60, 0);
        passes(&mut guest);
        guest.send(&[(&[0x55; 60], 0)]);
        passes(&mut guest);
        assert!(!theirs.take(|_| Vec::new()), "it still gets frames");
        assert_eq!(guest.received(), []);
        assert_eq!(guest.tx.as_mut().unwrap().north.take(), Ok(None));
        let mut buffers = vec![0; 4 * 0x1000];
        let at = GuestAddress(BUFFERS);
        guest.memory.read_slice(&mut buffers, at).unwrap();
        assert!(
            buffers.iter().all(|&byte| byte == 0),
            "a buffer was written"
        );
    }
}

/// While a frame of the bus waits for a buffer of the guest, the guest's own frames pass: the card
/// asks vbusd for a notification when there is room for them.
#[test]
fn frames_are_sent_while_a_received_one_waits_for_a_buffer() {
    // The first side is the north.
    const _: () = assert!(layout::VBUS_NORTH == 0);
    const ASKS: usize = offset_of!(layout::Ioq, signal)
        + offset_of!(layout::Signal, sides)
        + offset_of!(layout::Side, enabled);
    let vbusd = HostileVbusd::start();
    let (mut guest, mut theirs) = card(&vbusd);
    for _ in 0..5 {
        theirs.fill(&[0x33; 60], 60, 0);
    }
    guest.work(1);
    assert_eq!(guest.received().len(), 4);
    // A frame waits. The guest's frames fill the queue to vbusd.
    let delivered = |guest: &mut Guest| {
        let tx = &mut guest.tx.as_mut().unwrap().north;
        std::iter::from_fn(|| tx.take().unwrap()).count()
    };
    let mut sent = 0;
    loop {
        guest.send(&[(&[0x55; 60], 0)]);
        guest.work(1);
        if delivered(&mut guest) == 0 {
            break;
        }
        sent += 1;
        assert!(sent < 10_000, "the queue is never full");
    }
    let (at, _) = theirs.ring(1);
    assert_eq!(
        theirs.word(at + ASKS as u64),
        1,
        "it asks for no notification"
    );
    assert!(theirs.take(|_| Vec::new()), "there is no frame");
    guest.bridge.serve(true, 0);
    guest.work(1);
    assert_eq!(delivered(&mut guest), 1, "the next frame is not sent");
    // The frame that waits comes when there is a buffer.
    guest.post(1, 64);
    guest.work(1);
    assert_eq!(guest.received().len(), 1);
}

/// A client whose device broke the protocol works with the next one.
#[test]
fn a_client_reconnects_after_a_breach() {
    let vbusd = HostileVbusd::start();
    let script = Script {
        interface: "virtual-ethernet".to_string(),
        result: MAC.to_vec(),
        caps: 0,
        odd: None,
    };
    let options = Options {
        socket: vbusd.socket.clone(),
        bus: "lan".to_string(),
        device: "dev".to_string(),
        count: 8,
        buffer: 2048,
    };
    let (client, theirs) = vbusd.join(script.clone(), || Client::connect(options));
    let (mut client, mut theirs) = (client.unwrap(), theirs.unwrap());
    assert!(client.send(&[1; 60]).unwrap());
    let mut packet = [0; 64];
    for used in [2049, u32::MAX] {
        theirs.fill(&[0x33; 60], used, 0);
        for _ in 0..2 {
            let broken = client.receive(&mut packet);
            assert!(matches!(broken, Err(Error::Breach(_))), "{broken:?}");
        }
        let again = vbusd.join(script.clone(), || client.reconnect(Duration::ZERO));
        assert_eq!(again.0, Ok(()));
        theirs = again.1.unwrap();
        theirs.fill(&[0x44; 60], 60, 0);
        assert_eq!(client.receive(&mut packet), Ok(Some(60)));
        assert_eq!(packet[..60], [0x44; 60]);
        assert!(client.send(&[2; 60]).unwrap());
        assert!(theirs.take(|_| Vec::new()), "no packet is sent");
    }
}

/// A card whose frames get no answer polls rarely, and one whose frames do polls each time.
#[test]
fn a_card_on_a_bus_polls_where_answers_come() {
    const FRAMES: usize = 200;
    let vbusd = HostileVbusd::start();
    let script = Script {
        interface: "virtual-ethernet".to_string(),
        result: MAC.to_vec(),
        caps: 0,
        odd: None,
    };
    let (far, theirs) = vbusd.join(script, || Far::join(&vbusd.socket, "lan", "dev"));
    let mut theirs = theirs.unwrap();
    let bridge = Bridge::far(far.unwrap()).unwrap();
    let attributes = bridge.attributes();
    let poll = attributes.iter().find(|a| a.name() == "poll-us").unwrap();
    // So that a busy host ends no poll before the answer.
    poll.set(10_000);
    let mut guest = Guest::new(bridge);
    guest.up(0);
    guest.work(1);
    // As a vCPU's thread does it, which does not yield: other programs would make polls rare, too.
    let serve = |guest: &mut Guest, queues| guest.bridge.kicked(queues).left;
    let mut polled = |answered: bool| {
        guest.send(&[(&[0x55; 60], 0)]);
        let mut left = serve(&mut guest, 1);
        let polls = left != 0;
        assert!(theirs.take(|_| Vec::new()), "there is no frame");
        if answered && polls {
            guest.post(1, 64);
            theirs.fill(&[0x33; 60], 60, 0);
            left = serve(&mut guest, left);
            assert_eq!(guest.received().len(), 1, "it does not look for the answer");
        }
        while left != 0 && !answered {
            left = serve(&mut guest, left);
        }
        assert!(guest.tx.as_mut().unwrap().north.take().unwrap().is_some());
        polls
    };
    let polls = (0..FRAMES).filter(|_| polled(false)).count();
    assert!((3..=FRAMES / 10).contains(&polls), "{polls} of {FRAMES}");
    // Until it tries again.
    assert!((0..65).any(|_| polled(true)), "it never polls again");
    let polls = (0..FRAMES).filter(|_| polled(true)).count();
    assert_eq!(polls, FRAMES);
}

/// The administrator of the bus says which notifications are rare. An older vbusd has no such call.
#[test]
fn the_device_says_which_notifications_are_rare() {
    const ASKED: u32 = 10;
    let vbusd = HostileVbusd::start();
    let bytes = |bytes: &[u8]| Reply::Bytes(bytes.to_vec());
    let unknown = paravane_vbus::Error::new(Kind::NotFound, "there is no such call");
    for (answer, expected) in [
        (bytes(&[30, 0, 0, 0]), 30),
        (bytes(&[0, 0, 0, 0]), 0),
        (Reply::Error(unknown), 20),
        // An answer that cannot be right is not passed on.
        (bytes(&[0xff; 4]), 20),
        (bytes(&[30]), 20),
    ] {
        let script = Script {
            interface: "virtual-ethernet".to_string(),
            result: MAC.to_vec(),
            caps: 0,
            odd: Some((ASKED, encode(&answer).unwrap())),
        };
        let (far, _) = vbusd.join(script, || Far::join(&vbusd.socket, "lan", "dev"));
        let bridge = Bridge::far(far.unwrap()).unwrap();
        let rare = bridge.rare().unwrap();
        assert_eq!(
            (rare.name(), rare.get()),
            ("kick-us", expected),
            "{answer:?}"
        );
    }
}

/// The guest's driver learns whether frames reach the device's network. Invalid events do not reach
/// it.
#[test]
fn the_state_of_the_device_s_link_is_the_guest_s() {
    let vbusd = HostileVbusd::start();
    let script = Script {
        interface: "virtual-ethernet".to_string(),
        result: MAC.to_vec(),
        caps: 1,
        odd: None,
    };
    let (far, theirs) = vbusd.join(script, || Far::join(&vbusd.socket, "lan", "dev"));
    let (mut guest, mut theirs) = (guest(Box::new(far.unwrap())), theirs.unwrap());
    guest.up_pairs(0, 2);
    guest.events.as_mut().unwrap().post(8, 16);
    let event = |kind: u32, value: u32| [kind, value, 0, 0].map(u32::to_le_bytes).concat();
    let said = |guest: &mut Guest| {
        passes(guest);
        let memory = guest.memory.clone();
        guest.events.as_mut().unwrap().received(&memory)
    };
    assert_eq!(said(&mut guest), [(event(1, 1), 0)]);
    for value in [0, 1, 0] {
        theirs.send_event(&event(1, value), 16);
        theirs.ring_bell();
        assert_eq!(said(&mut guest), [(event(1, value), 0)]);
        // Another event, half of one, and the same state again.
        theirs.send_event(&event(2, 1 - value), 16);
        theirs.send_event(&event(1, 1 - value), 8);
        theirs.send_event(&event(1, value), 16);
        assert_eq!(said(&mut guest), []);
    }
    // More bytes than the buffer has are a breach, and end the connection.
    theirs.send_event(&event(1, 1), 17);
    assert_eq!(said(&mut guest), []);
    guest.send(&[(&[0x55; 60], 0)]);
    passes(&mut guest);
    assert!(!theirs.take(|_| Vec::new()), "it still gets frames");
}

/// A client asks for 4 pairs of queues, and gets 1 to 4.
#[test]
fn a_number_of_pairs_that_cannot_be_is_no_answer() {
    let vbusd = HostileVbusd::start();
    for result in [&[0; 4][..], &[5, 0, 0, 0], &[0xff; 4], &[1, 0, 0], &[]] {
        let script = Script {
            interface: "virtual-ethernet".to_string(),
            result: result.to_vec(),
            caps: 0,
            odd: None,
        };
        let options = Options {
            socket: vbusd.socket.clone(),
            bus: "lan".to_string(),
            device: "dev".to_string(),
            count: 8,
            buffer: 2048,
        };
        let (made, _) = vbusd.join(script, || Client::connect_pairs(options, 0, 4));
        assert!(matches!(made, Err(Error::Protocol(_))), "{result:?}");
    }
}

fn geometry(sectors: u64, block: u32, read_only: bool) -> Script {
    let mut bytes = vec![0; size_of::<BlockGeometry>()];
    let flags = if read_only {
        layout::VBUS_BLOCK_READ_ONLY
    } else {
        0
    };
    let flags = u32::try_from(flags).unwrap();
    let mut put = |at: usize, from: &[u8]| bytes[at..at + from.len()].copy_from_slice(from);
    put(offset_of!(BlockGeometry, sectors), &sectors.to_le_bytes());
    put(offset_of!(BlockGeometry, block), &block.to_le_bytes());
    put(offset_of!(BlockGeometry, flags), &flags.to_le_bytes());
    Script {
        interface: "virtual-block".to_string(),
        result: bytes,
        caps: 0,
        odd: None,
    }
}

fn disk(vbusd: &HostileVbusd, script: Script) -> Result<(Guest, Theirs), Error> {
    let (far, theirs) = vbusd.join(script, || FarDisk::join(&vbusd.socket, "lan", "dev"));
    let mut guest = guest(Box::new(far?));
    guest.up_disk();
    Ok((guest, theirs.unwrap()))
}

const HEADER: u64 = BUFFERS;
const DATA: u64 = BUFFERS + 0x1000;

/// Asks for a sector. The data goes to `DATA`.
fn ask(guest: &mut Guest, operation: u64, sector: u64) {
    let mut header = [0; size_of::<BlockRequest>()];
    let mut put = |at: usize, from: &[u8]| header[at..at + from.len()].copy_from_slice(from);
    let operation = u32::try_from(operation).unwrap();
    put(
        offset_of!(BlockRequest, operation),
        &operation.to_le_bytes(),
    );
    put(offset_of!(BlockRequest, sector), &sector.to_le_bytes());
    put(offset_of!(BlockRequest, sectors), &1_u32.to_le_bytes());
    put(offset_of!(BlockRequest, status), &u32::MAX.to_le_bytes());
    guest
        .memory
        .write_slice(&header, GuestAddress(HEADER))
        .unwrap();
    guest
        .memory
        .write_slice(&[0; 512], GuestAddress(DATA))
        .unwrap();
    let more = u32::try_from(layout::VBUS_BLOCK_MORE).unwrap();
    let tx = guest.tx.as_mut().unwrap();
    for (ptr, len, flags) in [(HEADER, 32, more), (DATA, 512, 0)] {
        let buffer = Buffer {
            cookie: 0,
            ptr,
            len,
            flags,
        };
        tx.north.post(buffer).unwrap();
    }
    passes(guest);
}

/// The status of the last request, and the first byte of its data.
fn answer(guest: &mut Guest) -> (u64, u8) {
    passes(guest);
    while guest.tx.as_mut().unwrap().north.take().unwrap().is_some() {}
    let at = HEADER + offset_of!(BlockRequest, status) as u64;
    let status: u32 = guest.memory.read_obj(GuestAddress(at)).unwrap();
    (
        status.into(),
        guest.memory.read_obj(GuestAddress(DATA)).unwrap(),
    )
}

/// The device does a request with this status.
fn served(theirs: &mut Theirs, status: u64) {
    let status = u32::try_from(status).unwrap().to_le_bytes();
    let header = theirs.take(|header| {
        let at = offset_of!(BlockRequest, status);
        [&header[..at], &status, &header[at + 4..]].concat()
    });
    assert!(
        header && theirs.take(|_| vec![0x66; 512]),
        "there was no request"
    );
}

/// The size, sectors and statuses that vbusd reports are checked as those of a local disk.
#[test]
fn a_disk_of_the_bus_is_what_vbusd_said_first_and_fails_where_it_says_nonsense() {
    let vbusd = HostileVbusd::start();
    for block in [0, 4096, u32::MAX] {
        assert!(
            disk(&vbusd, geometry(SECTORS, block, false)).is_err(),
            "{block}"
        );
    }
    let mut short = geometry(SECTORS, 512, false);
    short.result.pop();
    assert!(disk(&vbusd, short).is_err());

    let (mut guest, mut theirs) = disk(&vbusd, geometry(SECTORS, 512, false)).unwrap();
    ask(&mut guest, layout::VBUS_BLOCK_READ, SECTORS - 1);
    served(&mut theirs, layout::VBUS_BLOCK_DONE);
    assert_eq!(answer(&mut guest), (layout::VBUS_BLOCK_DONE, 0x66));
    // Of one that has failed nothing is read.
    for status in [0, layout::VBUS_BLOCK_FAILED, 7, u64::from(u32::MAX)] {
        ask(&mut guest, layout::VBUS_BLOCK_READ, 0);
        served(&mut theirs, status);
        assert_eq!(
            answer(&mut guest),
            (layout::VBUS_BLOCK_FAILED, 0),
            "{status}"
        );
    }
    ask(&mut guest, layout::VBUS_BLOCK_READ, SECTORS);
    assert!(
        !theirs.take(|_| Vec::new()),
        "vbusd is asked for what is not there"
    );
    assert_ne!(answer(&mut guest).0, layout::VBUS_BLOCK_DONE);

    // The largest disk that can be said. There is one client at a time.
    drop((guest, theirs));
    let (mut guest, mut theirs) = disk(&vbusd, geometry(u64::MAX, 512, true)).unwrap();
    for (operation, sector) in [
        (layout::VBUS_BLOCK_READ, u64::MAX),
        (layout::VBUS_BLOCK_WRITE, 0),
    ] {
        ask(&mut guest, operation, sector);
        assert!(
            !theirs.take(|_| Vec::new()),
            "vbusd is asked: {operation} {sector}"
        );
        assert_ne!(answer(&mut guest).0, layout::VBUS_BLOCK_DONE);
    }
}
