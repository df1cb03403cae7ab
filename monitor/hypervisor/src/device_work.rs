// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work of a device's thread, from any source: register writes of the
//! driver, notifications, events on the host.

use paravane_confine::Files;
use paravane_devices::counters::{Counters, count};
use paravane_devices::mmio::{Action, Registers, show_config};
use paravane_devices::{
    Broken, Device, Driver, Ending, Interrupt, Kicked, Line, Machine, Memory, Model, OwnDevice,
    Page, refused,
};
use std::fmt;
use std::sync::Arc;

/// A device's work.
pub enum Work {
    /// That of a virtio device.
    Virtio(Box<Virtio>),
    /// That of a device with registers of its own.
    Own(Box<dyn OwnDevice>),
}

impl Work {
    /// A device without a driver, shown in its page.
    ///
    /// # Errors
    /// The device has a queue of an invalid size.
    pub fn new(device: Model, transport: Transport) -> Result<Self, virtio_queue::Error> {
        match device {
            Model::Virtio(device) => Ok(Work::Virtio(Box::new(Virtio::new(device, transport)?))),
            Model::Own(mut device) => {
                let Transport {
                    memory,
                    page,
                    line,
                    counters,
                    ..
                } = transport;
                device.attach(Machine {
                    memory,
                    page,
                    line,
                    counters,
                });
                Ok(Work::Own(device))
            }
        }
    }

    /// The device's name.
    pub fn name(&self) -> String {
        match self {
            Work::Virtio(work) => work.name.clone(),
            Work::Own(device) => device.name(),
        }
    }

    /// The files that the device still opens.
    pub fn files(&self) -> Files {
        match self {
            Work::Virtio(work) => work.device.files(),
            Work::Own(device) => device.files(),
        }
    }

    /// Serves what happened on the host, if `host`, and the queues of `queues`, a bit for each.
    /// Returns the queues that it left before they were empty.
    pub fn serve(&mut self, host: bool, queues: u32) -> u32 {
        match self {
            Work::Virtio(work) => {
                work.serve(host, queues);
                work.driver.as_mut().map_or(0, Driver::end_round)
            }
            Work::Own(device) => device.serve(host, queues),
        }
    }

    /// A little of [`serve`](Work::serve), on the thread of the vCPU that notifies. Only
    /// devices come here of which [`OwnDevice::rare`] says so.
    pub fn kicked(&mut self, queues: u32) -> Kicked {
        match self {
            Work::Virtio(_) => Kicked {
                left: queues,
                stream: true,
            },
            Work::Own(device) => device.kicked(queues),
        }
    }

    /// Carries out a register write of the driver: `width` bytes of `value`. Notifications and
    /// acknowledgements of interrupts do not come here.
    pub fn write(&mut self, offset: u32, width: u32, value: u64) {
        match self {
            Work::Virtio(work) => work.write(offset, width, value),
            Work::Own(device) => device.write(offset, width, value),
        }
    }

    /// Carries out a command of a bridge's driver, which it has given by a call. Returns what the
    /// call does. A device that is no bridge has none.
    pub fn command(&mut self, address: u64) -> i32 {
        match self {
            Work::Virtio(_) => refused(paravane_abi::ENOENT),
            Work::Own(device) => device.command(address),
        }
    }
}

/// A virtio device, its registers, and its driver while there is one.
pub struct Virtio {
    memory: Arc<Memory>,
    name: String,
    page: Page,
    line: Arc<dyn Line>,
    counters: Arc<Counters>,
    ending: Ending,
    registers: Registers,
    device: Box<dyn Device>,
    /// The driver while it is ready.
    driver: Option<Driver>,
}

/// What the transport provides for a device.
pub struct Transport {
    /// Guest memory.
    pub memory: Arc<Memory>,
    /// The page in which the device shows its registers.
    pub page: Page,
    /// The device's interrupt.
    pub line: Arc<dyn Line>,
    /// What the device counts.
    pub counters: Arc<Counters>,
    /// The end of the machine.
    pub ending: Ending,
}

impl Virtio {
    fn new(device: Box<dyn Device>, transport: Transport) -> Result<Self, virtio_queue::Error> {
        let Transport {
            memory,
            page,
            line,
            counters,
            ending,
        } = transport;
        Ok(Virtio {
            name: device.name(),
            registers: Registers::new(page.clone(), &*device)?,
            memory,
            page,
            line,
            counters,
            ending,
            device,
            driver: None,
        })
    }

    fn serve(&mut self, host: bool, queues: u32) {
        if let Err(why) = self.try_to_serve(host, queues) {
            self.give_up(&why);
        }
    }

    fn try_to_serve(&mut self, host: bool, queues: u32) -> Result<(), Broken> {
        let Some(driver) = &mut self.driver else {
            return Ok(());
        };
        if host {
            count(&self.counters.wakeups, 1);
            self.device.woken(driver)?;
        }
        for queue in (0..32).filter(|queue| queues >> queue & 1 != 0) {
            if driver.queue_ready(queue) {
                count(&self.counters.notifications, 1);
                self.device.notified(driver, queue)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, width: u32, value: u64) {
        let action = self.registers.write(&self.memory, offset, width, value);
        self.act(action);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::None => {}
            Action::Activate => self.activate(),
            Action::Reset => {
                if self.driver.take().is_some() {
                    self.device.reset();
                }
                self.registers.reset(&self.device.config());
            }
            Action::Config { offset, bytes } => {
                self.device.write_config(offset, &bytes);
                show_config(&self.page, &self.device.config());
            }
        }
    }

    fn activate(&mut self) {
        tracing::debug!(
            device = self.name,
            features = self.registers.features(),
            "driver ready"
        );
        let interrupt: Arc<dyn Interrupt> = Arc::clone(&self.line) as _;
        let mut driver = Driver::new(
            Arc::clone(&self.memory),
            self.registers.queues(),
            self.registers.features(),
            interrupt,
        )
        .counting(Arc::clone(&self.counters))
        .until(self.ending.clone());
        let mut done = self.device.activate(&mut driver);
        if done.is_ok() {
            done = self.device.woken(&mut driver);
        }
        self.driver = Some(driver);
        if let Err(why) = done {
            self.give_up(&why);
        }
    }

    /// Stops the device because its driver has broken a rule.
    fn give_up(&mut self, why: &Broken) {
        use paravane_user_io::log::Seldom;
        use std::cell::RefCell;
        use std::time::Instant;
        thread_local! {
            /// A device has a thread of its own.
            static LINES: RefCell<Seldom> = const { RefCell::new(Seldom::new()) };
        }
        if let Some(left_out) = LINES.with_borrow_mut(|lines| lines.next(Instant::now())) {
            tracing::warn!(
                device = self.name,
                %why,
                left_out,
                "the guest's driver broke a rule: the device waits for a reset"
            );
        }
        count(&self.counters.resets, 1);
        self.driver = None;
        self.device.reset();
        self.registers.needs_reset();
        self.line.raise();
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
