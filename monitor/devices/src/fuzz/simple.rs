// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices whose requests have no structure, and the registers.

use super::{Request, Simple, Target, VERSION_1, play, sizes, start};
use crate::balloon::Balloon;
use crate::console::Console;
use crate::mmio::{Action, Registers};
use crate::register_page::Area;
use crate::rng::Rng;
use crate::test_guest::{Guest, MEMORY};
use crate::{Device, Memory};
use paravane_fuzz::{Input, fuzz};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use virtio_queue::QueueT;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

#[test]
fn rng() {
    fuzz("rng", || {
        |bytes| {
            let mut target = Simple {
                device: Rng::default(),
                queues: 1,
                peer: None,
            };
            play(&mut target, bytes);
        }
    });
}

#[test]
fn console() {
    fuzz("console", || {
        |bytes| {
            let (ours, peer) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            let mut device = Console::new(ours).unwrap();
            start(&mut device);
            play(
                &mut Simple {
                    device,
                    queues: 2,
                    peer: Some(peer),
                },
                bytes,
            );
        }
    });
}

struct Pages(Balloon);

impl Target for Pages {
    fn queues(&self) -> usize {
        3
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0
    }

    /// Holes are punched in a file.
    fn guest(&self) -> Guest {
        let mut guest = Guest::new(self.queues());
        let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(MEMORY as u64).unwrap();
        let ranges = [(GuestAddress(0), MEMORY, Some(FileOffset::new(file, 0)))];
        guest.memory = Arc::new(GuestMemoryMmap::from_ranges_with_files(ranges).unwrap());
        guest
    }

    /// The page numbers of a guest lead anywhere in its memory.
    fn anywhere(&self) -> bool {
        true
    }

    /// Page numbers to inflate or deflate; free pages, which are buffers.
    fn request(&mut self, queue: usize, input: &mut Input<'_>) -> Request {
        let (mut out, mut room) = (Vec::new(), Vec::new());
        if queue == 2 {
            room = sizes(input);
        } else {
            for _ in 0..input.u8() % 32 {
                let number = u32::try_from(input.size() & 0xffff_ffff).unwrap_or(0);
                out.extend(number.to_le_bytes());
            }
            let odd = usize::from(input.u8() % 4);
            out.extend(input.bytes(odd));
        }
        Request { out, room }
    }

    fn host(&mut self, _: &mut Input<'_>) {}
}

#[test]
fn balloon() {
    fuzz("balloon", || {
        |bytes| play(&mut Pages(Balloon::default()), bytes)
    });
}

/// Accesses to the registers of a device.
#[test]
fn registers() {
    fuzz("registers", || {
        |bytes| {
            let mut input = Input::new(bytes);
            let page = Area::new(1).unwrap().page(0);
            let (ours, _peer) = UnixStream::pair().unwrap();
            let device = Console::new(ours).unwrap();
            let mut registers = Registers::new(page.clone(), &device).unwrap();
            let memory: Memory =
                GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
            while !input.is_empty() {
                let offset = match input.u8() % 4 {
                    0 => input.u32(),
                    1 => 0x100 + u32::from(input.u8()),
                    _ => u32::from(input.u8() % 64) * 4,
                };
                let (width, value) = (input.pick(&[4u32, 4, 4, 4, 1, 2, 8, 3]), input.size());
                match registers.write(&memory, offset, width, value) {
                    Action::Reset => registers.reset(&device.config()),
                    Action::Activate => {
                        assert!(registers.active() && registers.features() & VERSION_1 != 0)
                    }
                    Action::Config { offset, bytes } => {
                        assert!(offset + bytes.len() <= device.config().len())
                    }
                    Action::None => {}
                }
                if input.u8() == 0xee {
                    registers.needs_reset();
                    assert!(!registers.active());
                }
                for queue in registers.queues() {
                    assert!(!queue.ready() || queue.is_valid(&memory));
                }
            }
        }
    });
}
