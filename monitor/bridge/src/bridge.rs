// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connector of a guest: its register, its notifications, its interrupt.

use crate::card::word;
use crate::command::{self, Command, event, outside, status};
use crate::disk::Attached;
use crate::host;
use crate::interrupts::{Interrupt, Interrupts};
use crate::join::Joiner;
use crate::memory::{Guest, Range};
use crate::model::Model;
use crate::planted::{self, Fault};
use crate::shown::{Devices, POLL};
use crate::watch::{Change, Watch};
use anyhow::Context;
use paravane_confine::Files;
use paravane_devices::counters::{Counters, count};
use paravane_devices::{Kicked, Line, Machine, OwnDevice, Page, Setting, Waker, refused};
use paravane_vbus::{
    ConnectionId, Credentials, Endpoint, Error, Event, Kind, MemberId, MemoryContext, Name, Vbus,
    limits,
};
use paravane_vbus_cards::{Way, give_way};
use paravane_vbus_shm::layout::{self, Bridge as Registers};
use paravane_vbus_shm::memory::size;
use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tracing::debug;

/// Connections of a guest.
pub const CONNECTIONS: usize = limits::CONNECTIONS;
const _: () = assert!(CONNECTIONS as u64 == layout::VBUS_BRIDGE_CONNECTIONS);
/// Most packets of a connection in one round.
const BUDGET: u32 = 128;
/// Most packets of a connection in a round of a vCPU's thread, which has guest code to run.
pub(crate) const KICKED_BUDGET: u32 = 4;
/// Most bytes of a call's argument and result.
const DATA: usize = 1024;
const _: () = assert!(DATA as u64 == layout::VBUS_BRIDGE_DATA && DATA == limits::CALL);

/// A connection of the guest.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: ConnectionId,
    /// The other side has ended it. The number stays taken until the guest closes it, too.
    ended: bool,
}

/// What the machine gave the bridge.
struct Host {
    guest: Guest,
    page: Page,
    line: Arc<dyn Line>,
    counters: Arc<Counters>,
}

/// The bus of vbusd that the machine takes whole.
pub(crate) struct Whole {
    /// Until it is followed.
    pub watch: Option<Watch>,
    pub changes: Receiver<Change>,
}

/// A bridge of a machine, with devices of its own, or with those of a bus of vbusd.
pub struct Bridge {
    name: &'static str,
    /// The devices, until the bridge starts.
    models: Vec<Model>,
    /// Where a device expects the guest's memory, and the way to the guest.
    pub(crate) memory: Option<Attached>,
    pub(crate) way: Option<Way>,
    /// How rare notifications are whose work a vCPU may do.
    pub(crate) rare: Option<Setting>,
    /// How long its cards look for work; `None`: it has none.
    pub(crate) poll: Option<Setting>,
    vbus: Vbus,
    bus: Name,
    devices: Devices,
    pub(crate) whole: Option<Whole>,
    /// For devices of another bus, once the bridge has started.
    far: Option<(Waker, Joiner)>,
    member: Option<MemberId>,
    slots: [Option<Slot>; CONNECTIONS],
    interrupts: Interrupts,
    events: u32,
    host: Option<Host>,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge")
            .field("vbus", &self.vbus)
            .finish_non_exhaustive()
    }
}

impl Bridge {
    /// With these devices. `name` is that of the thread's policy.
    ///
    /// # Errors
    /// None that can happen.
    pub(crate) fn new(name: &'static str, models: Vec<Model>) -> Result<Self, Error> {
        let mut vbus = Vbus::new(Vec::new());
        let bus = Name::new("machine")?;
        vbus.create_bus(&bus)?;
        Ok(Bridge {
            name,
            poll: models.iter().find_map(Model::poll).map(poll),
            models,
            memory: None,
            way: None,
            rare: None,
            vbus,
            devices: Devices::new(&bus),
            bus,
            whole: None,
            far: None,
            member: None,
            slots: [None; CONNECTIONS],
            interrupts: Interrupts::default(),
            events: 0,
            host: None,
        })
    }

    /// Adds the devices to the bus, once.
    fn add_devices(&mut self, waker: &Waker) -> anyhow::Result<()> {
        let watch = self.whole.as_mut().and_then(|whole| whole.watch.take());
        if watch.is_some() || self.models.iter().any(Model::is_far) {
            self.far = Some((waker.clone(), Joiner::start(waker, watch)?));
        }
        self.follow_poll();
        for (number, model) in (1..).zip(std::mem::take(&mut self.models)) {
            let joiner = self.far.as_ref().map(|(_, joiner)| joiner);
            let device = (0, Name::new(&format!("device{number}"))?, model);
            self.devices.add(&mut self.vbus, device, waker, joiner)?;
        }
        self.change();
        Ok(())
    }

    /// Its cards look for work for as long as its user says.
    fn follow_poll(&mut self) {
        if let Some(poll) = &self.poll {
            self.devices.set_poll(&mut self.vbus, poll.get());
        }
    }

    /// Follows the bus that the machine takes whole.
    fn change(&mut self) {
        let (Some(whole), Some((waker, joiner))) = (&self.whole, &self.far) else {
            return;
        };
        while let Ok(change) = whole.changes.try_recv() {
            self.devices.change(&mut self.vbus, change, waker, joiner);
        }
    }

    /// Carries out a command of the guest at this address, and reports what happened. Returns its
    /// status; `None`: there is no command.
    fn carry_out(&mut self, address: u64) -> Option<u32> {
        let Host {
            guest, counters, ..
        } = self.host.as_ref()?;
        let guest = guest.clone();
        count(&counters.commands, 1);
        let Some(mut command) = Command::read(&guest, address) else {
            debug!("virtual bus: a command at {address:#x}, where no memory is");
            return None;
        };
        command.status = match self.try_command(&guest, &mut command) {
            Ok(()) => 0,
            Err(error) => {
                debug!(command = command.command, %error, "virtual bus: refused");
                status(error.kind())
            }
        };
        // It was there a moment ago, and guest memory stays.
        let _ = command.write(&guest, address);
        self.announce();
        Some(command.status)
    }

    fn try_command(&mut self, guest: &Guest, command: &mut Command) -> Result<(), Error> {
        if command.command == command::START {
            return self.begin();
        }
        let Some(member) = self.member else {
            return Err(Error::new(Kind::Invalid, "the driver has not begun"));
        };
        match command.command {
            command::INTERFACE => self.interface(guest, member, command),
            command::OPEN => self.open(member, command),
            command::CLOSE => {
                let slot = self.slot(command)?;
                self.slots[command.connection as usize] = None;
                self.interrupts.end(command.connection);
                // It may have ended before.
                let _ = self.vbus.close(member, slot.id);
                Ok(())
            }
            command::SHARE => self.share(guest, member, command),
            command::CALL => self.call(guest, member, command),
            command::EVENT => {
                self.event(member, command);
                Ok(())
            }
            command::INTERRUPT => {
                if self.slot(command)?.ended {
                    return Err(Error::new(Kind::NotFound, "the connection has ended"));
                }
                let Command {
                    connection, queue, ..
                } = *command;
                let wanted = (command.apic, command.number);
                self.interrupts.set(connection, queue, wanted)
            }
            _ => Err(Error::new(Kind::NotFound, "there is no such command")),
        }
    }

    /// A driver begins: the queues and connections of an earlier one have ended.
    fn begin(&mut self) -> Result<(), Error> {
        if planted::is(Fault::KeepsConnections) && self.member.is_some() {
            return Ok(());
        }
        self.slots = [None; CONNECTIONS];
        self.interrupts.end_all();
        if let Some(member) = self.member.take() {
            self.vbus.leave(member);
        }
        let guest = Credentials {
            process: 1,
            uid: 0,
            gids: Vec::new(),
        };
        self.member = Some(self.vbus.join(&self.bus, guest, true)?);
        Ok(())
    }

    fn interface(
        &mut self,
        guest: &Guest,
        member: MemberId,
        command: &mut Command,
    ) -> Result<(), Error> {
        let mut all = self.vbus.interfaces(member)?;
        if planted::is(Fault::ListsLess) {
            all.pop();
        }
        let next = all.into_iter().find(|found| found.id > command.interface);
        let next = next.ok_or_else(|| Error::new(Kind::NotFound, "there are no more"))?;
        let name = next.interface.as_bytes();
        guest.write(command.data, name).map_err(outside)?;
        command.interface = next.id;
        command.number = next.version;
        command.length = u32::try_from(name.len()).unwrap_or(0);
        Ok(())
    }

    fn open(&mut self, member: MemberId, command: &mut Command) -> Result<(), Error> {
        let free = self.slots.iter().position(Option::is_none);
        let full = || Error::new(Kind::Limit, "the guest has too many connections");
        let number = free.ok_or_else(full)?;
        let id = self.vbus.open(member, command.interface, command.number)?;
        self.slots[number] = Some(Slot { id, ended: false });
        command.connection = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(())
    }

    /// The guest's connection.
    fn slot(&self, command: &Command) -> Result<Slot, Error> {
        let slot = usize::try_from(command.connection)
            .ok()
            .and_then(|number| self.slots.get(number).copied().flatten());
        slot.ok_or_else(|| Error::new(Kind::NotFound, "there is no such connection"))
    }

    fn share(&mut self, guest: &Guest, member: MemberId, command: &Command) -> Result<(), Error> {
        let slot = self.slot(command)?;
        let Some(host) = &self.host else {
            return Ok(());
        };
        if command.number > limits::DESCRIPTORS {
            let text = format!("a queue of {} descriptors is too long", command.number);
            return Err(Error::new(Kind::Limit, text));
        }
        let len = size(command.number);
        let missing = || Error::new(Kind::Invalid, "the queue is not in memory");
        let range = Range::new(&guest.0, command.data, len).ok_or_else(missing)?;
        let memory = Arc::new(guest.clone());
        let interrupt = Interrupt::new(&host.line);
        let notify = Arc::clone(&interrupt);
        self.vbus.share(member, slot.id, command.queue, |role| {
            let whole = 0..len as u64;
            let queue =
                Endpoint::open(Arc::new(range), whole, command.number, role, memory, notify);
            queue.map_err(|why| Error::new(Kind::Broken, why.to_string()))
        })?;
        self.interrupts
            .add(command.connection, command.queue, interrupt);
        Ok(())
    }

    fn call(
        &mut self,
        guest: &Guest,
        member: MemberId,
        command: &mut Command,
    ) -> Result<(), Error> {
        let slot = self.slot(command)?;
        let mut argument = [0; DATA];
        let mut length = usize::try_from(command.length).unwrap_or(usize::MAX);
        if planted::is(Fault::CutsArguments) {
            length = length.min(DATA);
        }
        let argument = argument.get_mut(..length);
        let too_long = || Error::new(Kind::Limit, "the argument is too long");
        let argument = argument.ok_or_else(too_long)?;
        guest.read(command.data, argument).map_err(outside)?;
        let result = self.vbus.call(member, slot.id, command.number, argument)?;
        if !(planted::is(Fault::LosesResults) && result.len() == argument.len()) {
            guest.write(command.data, &result).map_err(outside)?;
        }
        command.length = u32::try_from(result.len()).unwrap_or(0);
        Ok(())
    }

    fn event(&mut self, member: MemberId, command: &mut Command) {
        loop {
            let next = self.vbus.event(member);
            let Some(next) = next.filter(|_| !planted::is(Fault::NoEvents)) else {
                command.number = word(layout::VBUS_EVENT_NONE);
                return;
            };
            (command.number, command.interface) = event(&next);
            let Event::Closed { connection, .. } = next else {
                return;
            };
            let mine = |slot: &Option<Slot>| slot.is_some_and(|s| s.id == connection && !s.ended);
            // The guest may have closed it itself. Events are bounded.
            let Some(number) = self.slots.iter().position(mine) else {
                continue;
            };
            if let Some(slot) = &mut self.slots[number] {
                slot.ended = true;
            }
            command.connection = u32::try_from(number).unwrap_or(u32::MAX);
            return;
        }
    }

    /// Reports events to the guest.
    fn announce(&mut self) {
        let news = self.vbus.take_news();
        let (Some(member), Some(host)) = (self.member.filter(|_| news), &self.host) else {
            return;
        };
        if self.vbus.has_event(member) {
            self.events = self.events.wrapping_add(1);
            host.page.show(offset_of!(Registers, events), self.events);
            host.line.raise();
        }
    }
}

/// How long cards look for work, in microseconds, with this value at first.
pub(crate) fn poll(at_first: u32) -> Setting {
    Setting::new(POLL, at_first)
}

impl OwnDevice for Bridge {
    fn kind(&self) -> u32 {
        word(paravane_abi::DEVICE_VBUS)
    }

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn files(&self) -> Files {
        Files::none()
    }

    fn numbers(&self) -> u32 {
        word(layout::VBUS_BRIDGE_CONNECTIONS)
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.add_devices(waker)
            .context("cannot start the virtual bus")
    }

    fn attach(&mut self, machine: Machine) {
        let Machine {
            memory,
            page,
            line,
            counters,
        } = machine;
        let numbers = [
            (
                offset_of!(Registers, features),
                layout::VBUS_FEATURE_INTERRUPT,
            ),
            (offset_of!(Registers, version), layout::VBUS_BRIDGE_VERSION),
            (offset_of!(Registers, magic), layout::VBUS_BRIDGE_MAGIC),
        ];
        for (offset, value) in numbers {
            page.show(offset, u32::try_from(value).unwrap_or(0));
        }
        if let Some(attached) = &self.memory {
            // A device is attached once.
            let _ = attached.set(Arc::clone(&memory));
        }
        if let Some(way) = &self.way {
            let _ = way.set(host::peer(&line));
        }
        self.host = Some(Host {
            guest: Guest(memory),
            page,
            line,
            counters,
        });
    }

    fn write(&mut self, offset: u32, width: u32, value: u64) {
        if offset as usize == offset_of!(Registers, command) && width == 8 {
            self.carry_out(value);
        }
    }

    fn command(&mut self, address: u64) -> i32 {
        if let Some(Host { counters, .. }) = &self.host {
            count(&counters.commands_called, 1);
        }
        let status = self.carry_out(address);
        let status = status.and_then(|status| i32::try_from(status).ok());
        status.unwrap_or(refused(paravane_abi::EFAULT))
    }

    fn attributes(&self) -> Vec<Setting> {
        self.poll.iter().chain(&self.rare).cloned().collect()
    }

    fn rare(&self) -> Option<Setting> {
        self.rare.clone()
    }

    fn kicked(&mut self, notified: u32) -> Kicked {
        let left = self.round(false, notified, KICKED_BUDGET);
        let stream = self.vbus.streams();
        Kicked { left, stream }
    }

    fn serve(&mut self, host: bool, queues: u32) -> u32 {
        let left = self.round(host, queues, BUDGET);
        give_way(&mut self.vbus);
        left
    }
}

impl Bridge {
    /// A round of work, of at most `budget` packets of a connection. See [`OwnDevice::serve`].
    fn round(&mut self, host: bool, queues: u32, budget: u32) -> u32 {
        self.follow_poll();
        if let Some(Host { counters, .. }) = &self.host {
            if host {
                count(&counters.wakeups, 1);
            }
            // The bit above them is the bridge's own.
            let notified = queues & ((1 << CONNECTIONS) - 1);
            count(&counters.notifications, u64::from(notified.count_ones()));
        }
        if host {
            self.change();
            self.devices.woken(&mut self.vbus);
        }
        for (number, slot) in self.slots.iter().enumerate() {
            if let Some(slot) = slot.filter(|_| queues >> number & 1 != 0) {
                self.vbus.notified(slot.id);
            }
        }
        let idle = planted::is(Fault::IdleDevices);
        let broken = self.vbus.work(if idle { 0 } else { budget });
        if let Some(Host { counters, .. }) = &self.host {
            count(&counters.resets, broken.len() as u64);
        }
        self.devices.follow(&mut self.vbus);
        self.announce();
        // No connection has this number, so it only leads here again.
        u32::from(self.vbus.has_work()) << CONNECTIONS
    }
}
