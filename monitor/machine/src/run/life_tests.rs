// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every transition of a machine's life, by a clock of the test's own.

use super::*;

const COMMAND: Plan = Plan {
    command: true,
    keeps: false,
    system: false,
    stop: SIGTERM,
    patient: false,
    timeout: None,
};
const IDLE: Plan = Plan {
    command: false,
    keeps: true,
    ..COMMAND
};
const KEEPS: Plan = Plan {
    keeps: true,
    ..COMMAND
};
const SYSTEM: Plan = Plan {
    system: true,
    ..IDLE
};
const DONE: Outcome = Outcome::Guest(7);
const BY_TERM: Finish = Finish::Outcome(Outcome::Interrupted(SIGTERM));
/// What `paravane stop` has to kill.
const BY_KILL: Finish = Finish::Outcome(Outcome::Interrupted(SIGKILL));

/// A life, and a clock.
struct Test {
    life: Life,
    start: Instant,
    now: Instant,
}

impl Test {
    fn starting(plan: Plan) -> Self {
        let start = Instant::now();
        Test {
            life: Life::new(plan, start),
            start,
            now: start,
        }
    }

    fn booting(plan: Plan) -> Self {
        let mut test = Test::starting(plan);
        assert_eq!(test.on(Event::Made), Action::None);
        assert!(matches!(test.life.state(), State::Booting { .. }));
        test
    }

    fn running(plan: Plan) -> Self {
        let mut test = Test::booting(plan);
        assert_eq!(test.on(Event::AgentCalled), Action::None);
        assert_eq!(*test.life.state(), State::Running);
        test
    }

    /// The guest of a machine with a command that has ended powers off.
    fn powering_off() -> Self {
        let mut test = Test::running(KEEPS);
        assert_eq!(test.on(Event::CommandEnded(DONE)), Action::PowerOff);
        test
    }

    fn ending(plan: Plan) -> Self {
        let mut test = Test::running(plan);
        assert_eq!(test.on(Event::AgentLost("gone".into())), Action::None);
        test
    }

    fn on(&mut self, event: Event) -> Action {
        self.life.on(event, self.now)
    }

    /// Waits as the loop does: to the next time at which something changes. What follows then, and
    /// how long that took.
    fn wait(&mut self) -> (Action, Duration) {
        let next = self.life.next().expect("nothing to wait for");
        // A moment before, nothing happens.
        let before = self.life.state().clone();
        let early = next - Duration::from_millis(1);
        if early > self.now {
            assert_eq!(self.life.on(Event::Time, early), Action::None);
            assert_eq!(*self.life.state(), before);
        }
        let took = next - self.now;
        self.now = next;
        (self.on(Event::Time), took)
    }

    fn finish(&self) -> &Finish {
        match self.life.state() {
            State::Ended(finish) => finish,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the end: it takes that long, and is that.
    fn ends_after(&mut self, time: Duration, finish: &Finish) {
        assert_eq!(self.wait(), (Action::None, time));
        assert_eq!(self.finish(), finish);
        assert_eq!(self.life.next(), None);
    }

    /// It has ended with what just happened.
    fn ended(&self, finish: &Finish) {
        assert_eq!(self.finish(), finish);
        assert_eq!(self.life.next(), None);
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_command_runs_and_the_machine_ends_with_it() {
    let mut test = Test::running(COMMAND);
    assert_eq!(test.life.next(), None, "it may run for ever");
    assert_eq!(test.on(Event::Time), Action::None);
    assert_eq!(test.on(Event::CommandEnded(DONE)), Action::None);
    test.ended(&Finish::Outcome(DONE));
    // Nothing follows any more.
    for event in [
        Event::Signal(SIGTERM),
        Event::Kill,
        Event::Time,
        Event::Quit,
        Event::MachineEnded(End::Shutdown(0)),
        Event::CommandEnded(Outcome::Passed),
    ] {
        assert_eq!(test.on(event), Action::None);
    }
    test.ended(&Finish::Outcome(DONE));
}

#[test]
fn before_the_command_runs_an_end_is_at_once() {
    for begin in [Test::starting, Test::booting] {
        for (event, finish) in [
            (Event::Signal(2), Finish::Outcome(Outcome::Interrupted(2))),
            (Event::Stop(seconds(100)), BY_TERM),
            (Event::Kill, BY_KILL),
        ] {
            let mut test = begin(COMMAND);
            assert_eq!(test.on(event), Action::None);
            test.ended(&finish);
        }
    }
}

#[test]
fn a_host_has_its_time() {
    let mut test = Test::starting(COMMAND);
    // There is no kernel to interrupt.
    assert_eq!(test.on(Event::Quit), Action::None);
    test.ends_after(MAKE, &Finish::NotMade);
}

#[test]
fn a_guest_has_its_time_to_boot_and_then_says_why() {
    let mut test = Test::booting(COMMAND);
    assert_eq!(test.wait(), (Action::Interrupt, BOOT));
    let why = format!("the guest had not started after {} s", BOOT.as_secs());
    let crashed = Finish::Crashed(format!("{why}; it does not answer"));
    test.ends_after(REPORT, &crashed);

    // It answers with a panic, which is its end.
    let mut test = Test::booting(COMMAND);
    test.wait();
    test.on(Event::MachineEnded(End::Shutdown(255)));
    test.ended(&Finish::Crashed(why));

    // The agent starts late, while it is asked to end. The kernel panics nevertheless.
    let mut test = Test::booting(COMMAND);
    test.wait();
    test.on(Event::AgentCalled);
    assert_eq!(*test.life.state(), State::Running);
    assert_eq!(test.wait().1, REPORT);
    assert!(matches!(test.finish(), Finish::Crashed(_)));

    // With a debugger there is no hurry.
    let patient = Plan {
        patient: true,
        ..COMMAND
    };
    assert_eq!(Test::booting(patient).life.next(), None);
}

#[test]
fn a_machine_that_ends_by_itself_says_how() {
    let end = || End::Shutdown(3);
    let mut test = Test::booting(COMMAND);
    test.on(Event::MachineEnded(end()));
    test.ended(&Finish::Early(end()));
    for mut test in [Test::running(COMMAND), Test::ending(COMMAND)] {
        test.on(Event::MachineEnded(end()));
        test.ended(&Finish::Machine(end()));
    }
}

#[test]
fn a_command_is_asked_and_has_its_time() {
    let mut test = Test::running(KEEPS);
    assert_eq!(test.on(Event::Signal(2)), Action::Signal(2));
    test.ends_after(GRACE, &Finish::Outcome(Outcome::Interrupted(2)));

    let mut test = Test::running(COMMAND);
    assert_eq!(test.on(Event::Stop(seconds(20))), Action::Signal(SIGTERM));
    test.ends_after(seconds(20), &BY_KILL);

    // A machine with a writable disk powers off first, so its data is not lost.
    let mut test = Test::running(KEEPS);
    test.on(Event::Stop(seconds(20)));
    test.now += seconds(20);
    assert_eq!(test.on(Event::Time), Action::PowerOff);
    let mut written = Test::running(KEEPS);
    written.on(Event::Stop(seconds(20)));
    written.now += seconds(20);
    written.on(Event::Time);
    written.on(Event::MachineEnded(End::Shutdown(0)));
    written.ended(&BY_KILL);
    let late = Finish::Unwritten(Outcome::Interrupted(SIGKILL));
    test.ends_after(GIVEN_UP, &late);

    // Some commands are asked by another signal.
    let mut test = Test::running(Plan { stop: 2, ..COMMAND });
    assert_eq!(test.on(Event::Stop(seconds(20))), Action::Signal(2));
    test.ends_after(seconds(20), &BY_KILL);

    // It ends in time: then its own code counts.
    let mut test = Test::running(COMMAND);
    test.on(Event::Signal(SIGTERM));
    test.now += seconds(1);
    test.on(Event::CommandEnded(DONE));
    test.ended(&Finish::Outcome(DONE));

    // The sooner of two counts, whichever came first.
    for times in [[20, 5], [5, 20]] {
        let mut test = Test::running(COMMAND);
        for time in times {
            assert_eq!(test.on(Event::Stop(seconds(time))), Action::Signal(SIGTERM));
        }
        test.ends_after(seconds(5), &BY_KILL);
    }

    let mut test = Test::running(COMMAND);
    test.on(Event::Kill);
    test.ended(&BY_KILL);
}

#[test]
fn a_guest_writes_back_and_its_command_s_code_counts() {
    let mut test = Test::powering_off();
    test.on(Event::MachineEnded(End::Shutdown(0)));
    test.ended(&Finish::Outcome(DONE));

    // A guest that does not write back, or fails before that, may have lost data.
    Test::powering_off().ends_after(WRITE_BACK, &unwritten());
    for end in [
        End::Shutdown(255),
        End::Shutdown(254),
        End::Failed("gone".into()),
    ] {
        let mut test = Test::powering_off();
        test.on(Event::MachineEnded(end.clone()));
        test.ended(&Finish::Machine(end));
    }
}

fn unwritten() -> Finish {
    Finish::NotWritten(WRITE_BACK)
}

#[test]
fn a_guest_that_writes_back_is_hurried() {
    let bound = |event: Event, time: Duration, finish: Finish| {
        let mut test = Test::powering_off();
        test.now += seconds(1);
        assert_eq!(test.on(event), Action::None);
        test.ends_after(time, &finish);
    };
    bound(Event::Signal(SIGTERM), GRACE, Finish::Unwritten(DONE));
    bound(Event::Stop(seconds(2)), seconds(2), Finish::Unwritten(DONE));
    // No request makes it slower.
    bound(
        Event::Stop(seconds(100)),
        WRITE_BACK - seconds(1),
        unwritten(),
    );

    let mut test = Test::powering_off();
    test.on(Event::Kill);
    test.ended(&Finish::Outcome(DONE));

    // What asked before counts for this, too.
    let mut test = Test::running(KEEPS);
    test.on(Event::Signal(SIGTERM));
    test.now += seconds(1);
    assert_eq!(test.on(Event::CommandEnded(DONE)), Action::PowerOff);
    test.ends_after(GRACE - seconds(1), &Finish::Unwritten(DONE));
}

#[test]
fn a_machine_without_a_command_powers_off_when_it_is_asked_to_end() {
    for (event, time, late) in [
        (Event::Signal(SIGTERM), GRACE, BY_TERM),
        (Event::Stop(seconds(30)), seconds(30), BY_KILL),
    ] {
        let mut test = Test::running(IDLE);
        assert_eq!(test.on(event.clone()), Action::PowerOff);
        test.on(Event::MachineEnded(End::Shutdown(0)));
        test.ended(&Finish::Machine(End::Shutdown(0)));

        let mut test = Test::running(IDLE);
        test.on(event);
        let Finish::Outcome(late) = late else {
            panic!("{late:?}");
        };
        test.ends_after(time, &Finish::Unwritten(late));
    }
    let mut test = Test::running(IDLE);
    test.on(Event::Stop(seconds(30)));
    test.on(Event::Kill);
    test.ended(&BY_KILL);
}

#[test]
fn without_its_agent_a_machine_has_the_time_for_its_own_end() {
    Test::ending(COMMAND).ends_after(LAST_WORDS, &Finish::Failed("gone".into()));
    // A system's init goes on to end services.
    Test::ending(SYSTEM).ends_after(SYSTEM_ENDS, &Finish::Failed("gone".into()));

    let mut test = Test::ending(SYSTEM);
    assert_eq!(test.on(Event::Signal(SIGTERM)), Action::None);
    test.ends_after(GRACE, &BY_TERM);
    let mut test = Test::ending(SYSTEM);
    test.on(Event::Stop(seconds(1)));
    test.ends_after(seconds(1), &BY_KILL);
    let mut test = Test::ending(SYSTEM);
    test.on(Event::Kill);
    test.ended(&BY_KILL);

    // What asked before counts.
    let mut test = Test::running(Plan {
        system: true,
        ..COMMAND
    });
    test.on(Event::Stop(seconds(4)));
    test.on(Event::AgentLost("gone".into()));
    test.ends_after(seconds(4), &BY_KILL);
}

#[test]
fn the_time_of_a_machine_is_over_in_every_state() {
    let timed = |plan: Plan| {
        let mut test = Test::starting(plan);
        test.life.plan.timeout = Some(test.start + seconds(1));
        test
    };
    timed(COMMAND).ends_after(seconds(1), &Finish::TimedOut);

    let mut test = timed(COMMAND);
    test.on(Event::Made);
    test.ends_after(seconds(1), &Finish::TimedOut);

    let mut test = timed(COMMAND);
    test.on(Event::Made);
    test.on(Event::AgentCalled);
    // Longer than that does nothing keep it.
    test.on(Event::Stop(seconds(100)));
    test.ends_after(seconds(1), &Finish::TimedOut);

    // A guest that is on its way out has the grace.
    let mut test = timed(KEEPS);
    test.on(Event::Made);
    test.on(Event::AgentCalled);
    test.on(Event::CommandEnded(DONE));
    test.ends_after(seconds(1) + GRACE, &Finish::Unwritten(DONE));

    let mut test = timed(SYSTEM);
    test.on(Event::Made);
    test.on(Event::AgentCalled);
    test.on(Event::AgentLost("gone".into()));
    test.ends_after(seconds(1) + GRACE, &Finish::Failed("gone".into()));
}

#[test]
fn a_guest_is_asked_what_it_does() {
    let why = "the guest was interrupted, see above for what it did";
    let mut test = Test::running(COMMAND);
    assert_eq!(test.on(Event::Quit), Action::Interrupt);
    // Once.
    assert_eq!(test.on(Event::Quit), Action::None);
    // The command continues during this.
    assert_eq!(test.on(Event::Signal(SIGTERM)), Action::Signal(SIGTERM));
    test.on(Event::MachineEnded(End::Shutdown(255)));
    test.ended(&Finish::Crashed(why.into()));

    let mut test = Test::running(COMMAND);
    test.on(Event::Quit);
    test.ends_after(
        REPORT,
        &Finish::Crashed(format!("{why}; it does not answer")),
    );
}

#[test]
fn what_comes_late_changes_nothing() {
    // The command's end and the agent's are one: the first to be seen counts.
    let mut test = Test::powering_off();
    assert_eq!(test.on(Event::AgentLost("gone".into())), Action::None);
    assert_eq!(test.on(Event::CommandEnded(Outcome::Passed)), Action::None);
    assert_eq!(test.on(Event::AgentCalled), Action::None);
    assert_eq!(test.on(Event::Made), Action::None);
    test.ends_after(WRITE_BACK, &unwritten());
}

/// The time to print at the end is taken from the guest's time, so it never exceeds that.
#[test]
fn a_machine_that_is_asked_to_end_prints_no_longer_than_its_guest_may_run() {
    assert_eq!(Test::running(COMMAND).life.print_by(), None);
    for plan in [COMMAND, IDLE, KEEPS, SYSTEM] {
        for event in [Event::Signal(SIGTERM), Event::Kill] {
            let mut test = Test::running(plan);
            let by = test.now + GRACE;
            test.on(event);
            assert_eq!(test.life.print_by(), Some(by));
            // A later request gives it no more time.
            test.now += seconds(1);
            test.on(Event::Stop(seconds(10)));
            test.on(Event::MachineEnded(End::Shutdown(255)));
            assert_eq!(test.life.print_by(), Some(by));
        }
        let mut test = Test::running(plan);
        test.on(Event::Stop(seconds(10)));
        assert_eq!(test.life.print_by(), Some(test.now + seconds(10)));
        test.on(Event::Signal(SIGTERM));
        assert_eq!(test.life.print_by(), Some(test.now + GRACE));
    }
    let start = Instant::now();
    let timeout = Some(start + seconds(20));
    let life = Life::new(Plan { timeout, ..COMMAND }, start);
    assert_eq!(life.print_by(), Some(start + seconds(20) + GRACE));
}
