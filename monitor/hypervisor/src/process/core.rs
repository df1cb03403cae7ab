// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the monitor's threads for one virtual machine share.

use super::clock_news::ClockNews;
use super::processes::Processes;
use super::shared::Shared;
use super::vcpu_cpus::VcpuCpus;
use super::wakeups::Wakeups;
use super::{device, kick_service, sys};
use crate::device_list::DeviceList;
use crate::end_state::EndState;
use paravane_devices::Reactor;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One virtual machine.
#[derive(Debug)]
pub struct Core {
    /// The memory that the monitor shares with the layer.
    pub shared: Shared,
    /// The number of vCPUs.
    pub vcpus: usize,
    /// The address-space processes.
    pub processes: Processes,
    /// The host CPU of each vCPU.
    pub cpus: VcpuCpus,
    /// The devices' counters.
    pub devices: DeviceList,
    /// What is new about the clock.
    pub clock_news: ClockNews,
    /// The files of all devices.
    pub reactor: Arc<Reactor>,
    /// Whether and how the machine ends.
    pub end: EndState,
    /// How its threads are woken.
    pub wakeups: Wakeups,
}

impl Core {
    /// Creates a machine without processes and devices.
    ///
    /// # Errors
    /// The host gives no event counters.
    pub fn new(shared: Shared, vcpus: usize) -> io::Result<Self> {
        Ok(Core {
            shared,
            vcpus,
            processes: Processes::new(),
            cpus: VcpuCpus::new(vcpus),
            devices: DeviceList::default(),
            clock_news: ClockNews::default(),
            reactor: Reactor::new()?,
            end: EndState::default(),
            wakeups: Wakeups::new()?,
        })
    }

    /// Sets the number of processes, here and for the layer, and wakes the watch, which accounts
    /// for them.
    pub fn publish_count(&self, count: u32) {
        self.processes.publish(&self.shared, count);
        self.wakeups.wake_watch();
    }

    /// Ends the machine because it cannot go on. The first reason stays. When this returns, or very
    /// soon after, none of the machine's code runs any more.
    pub fn fail(&self, why: String) {
        self.end.set_failure(why);
        self.processes.kill();
        self.wake_all();
    }

    /// Asks all threads to end.
    pub fn stop(&self) {
        self.end.ending.begin();
        self.wake_all();
    }

    /// Whether the threads are asked to end.
    pub fn stopping(&self) -> bool {
        self.end.ending.begun()
    }

    /// Makes the alarm thread look at the clock's news.
    pub fn wake_alarms(&self) {
        ring(&self.shared.header().alarm_word);
    }

    /// Wakes all threads, so that each looks whether there is something to do.
    pub fn wake_all(&self) {
        self.wakeups.wake_supervisor();
        for word in [
            &self.shared.header().doorbell,
            &self.shared.header().alarm_word,
        ] {
            ring(word);
        }
        kick_service::wake(self);
        self.wakeups.wake_watch();
        self.reactor.stop();
        device::wake_all(self);
        self.wakeups.wake_debugger();
    }
}

/// Counts a futex up and wakes the threads that sleep on it.
fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(word);
}
