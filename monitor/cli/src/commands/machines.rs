// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands for named machines: create, start, list, inspect, end, remove.

use super::OUTPUT;
use super::launch::launch;
use super::log::Log;
use super::run;
use crate::arguments;
use anyhow::{Context, bail};
use paravane_machine::control::{Request, Unreachable, ask, ask_within};
use paravane_machine::store::{Machine, State, Store};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::text;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};
use serde_json::json;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The time in which a monitor must end its machine.
const END: Duration = Duration::from_secs(10);
/// Interval between two checks of a machine's output.
const LOOK: Duration = Duration::from_millis(50);

/// `create`
pub fn create(args: &arguments::Create) -> anyhow::Result<Outcome> {
    let machine = Store::open()?.create(args.name.as_deref(), &run::background(&args.machine)?)?;
    super::say(&machine.name)?;
    Ok(Outcome::Passed)
}

/// Does the same for each of these machines, and prints the names of those with which it worked.
/// The others go on after an error. The last error is the command's, the earlier ones are printed.
fn each(
    names: &[String],
    act: impl Fn(&Store, &str) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    act_on(names, |store, name| {
        act(store, name)?;
        super::say(name)
    })
}

/// Does something for each of these machines, and prints no names.
fn act_on(
    names: &[String],
    act: impl Fn(&Store, &str) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let store = Store::open()?;
    let mut failure: Option<anyhow::Error> = None;
    for name in names {
        if let Err(error) = act(&store, name)
            && let Some(earlier) = failure.replace(error)
        {
            crate::complain(&earlier);
        }
    }
    failure.map_or(Ok(Outcome::Passed), Err)
}

/// `start` succeeds for a machine that runs already.
pub fn start(args: &arguments::Names) -> anyhow::Result<Outcome> {
    each(&args.names, |store, name| {
        let machine = store.find(name)?;
        launch(&machine)
    })
}

/// `ps`
pub fn ps(args: &arguments::Ps) -> anyhow::Result<Outcome> {
    let (mut rows, mut outcome) = (Vec::new(), Outcome::Passed);
    // The list has the other machines even so.
    let mut unreadable = |machine: &Machine, error: anyhow::Error| {
        crate::complain(&error.context(format!("machine {}", machine.name)));
        outcome = Outcome::Failed;
    };
    for machine in Store::open()?.all()? {
        match machine.state() {
            Ok(state) if args.all || matches!(state, State::Running { .. }) => {
                rows.push((machine, state));
            }
            Ok(_) => {}
            Err(error) => unreadable(&machine, error),
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        let mut all = Vec::new();
        for (machine, state) in &rows {
            match describe(machine, *state) {
                Ok(one) => all.push(one),
                Err(error) => unreadable(machine, error),
            }
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?).context(OUTPUT)?;
        return Ok(outcome);
    }
    let titles = ["NAME", "STATE", "PORTS", "COMMAND"].map(String::from);
    let mut table = vec![titles];
    table.extend(rows.iter().map(|(machine, state)| row(machine, *state)));
    // The last column needs no width.
    let widths = [0, 1, 2].map(|column| {
        let cells = table.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    let [name_width, state_width, ports_width] = widths;
    for [name, state, ports, command] in table {
        writeln!(
            out,
            "{name:name_width$}  {state:state_width$}  {ports:ports_width$}  {command}"
        )
        .context(OUTPUT)?;
    }
    Ok(outcome)
}

/// The row of a machine in the table of `ps`: its name, state, published ports and command.
fn row(machine: &Machine, state: State) -> [String; 4] {
    let or_none = |text: String| if text.is_empty() { "-".into() } else { text };
    let (ports, command) = match machine.spec() {
        Ok(spec) => {
            let words: Vec<_> = spec
                .command
                .iter()
                .map(|word| word.0.to_string_lossy().into_owned())
                .collect();
            (spec.publish.join(","), text::one_line(&words.join(" ")))
        }
        Err(error) => (String::new(), format!("({error})")),
    };
    let state = match state {
        State::Created => "created".to_string(),
        State::Running { pid } => running_word(machine, pid).to_string(),
        State::Exited(code) => format!("exited {code}"),
        State::Died => "died".to_string(),
    };
    // A damaged record is reported by `inspect`.
    let state = match machine.lives() {
        Ok(Some(lives)) if lives.restarts > 0 => format!("{state}, restarts: {}", lives.restarts),
        _ => state,
    };
    [
        machine.name.clone(),
        state,
        or_none(ports),
        or_none(command),
    ]
}

/// The state of a machine that has not ended. Between two lives, its restarter stands in for its
/// monitor.
fn running_word(machine: &Machine, pid: u32) -> &'static str {
    match machine.lives() {
        Ok(Some(lives)) if lives.restarter == pid => "restarting",
        _ => "running",
    }
}

/// `inspect`
pub fn inspect(args: &arguments::Names) -> anyhow::Result<Outcome> {
    act_on(&args.names, |store, name| {
        let machine = store.find(name)?;
        let state = machine.state()?;
        let text = serde_json::to_string_pretty(&describe(&machine, state)?)?;
        writeln!(io::stdout(), "{text}").context(OUTPUT)
    })
}

fn describe(machine: &Machine, state: State) -> anyhow::Result<serde_json::Value> {
    let (word, pid, code) = match state {
        State::Created => ("created", None, None),
        State::Running { pid } => (running_word(machine, pid), Some(pid), None),
        State::Exited(code) => ("exited", None, Some(code)),
        State::Died => ("died", None, None),
    };
    Ok(json!({
        "name": machine.name,
        "state": word,
        "pid": pid,
        "exit_code": code,
        "restarts": machine.lives()?.map_or(0, |lives| lives.restarts),
        "hypervisor": machine.recorded("hypervisor.json")?,
        "network": machine.recorded("network.json")?,
        "folder": machine.folder(),
        "confinement": pid.map(|pid| confinement(machine, pid)).transpose()?,
        "spec": machine.spec()?,
    }))
}

/// How the monitor of a machine is confined, as the host reports it: whether each of its threads
/// has a seccomp filter; which Landlock version limits them to the machine's files (0: none); and
/// what keeps the signals of the machine's processes inside.
fn confinement(machine: &Machine, pid: u32) -> anyhow::Result<serde_json::Value> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let filtered: Vec<bool> = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(|status| status.lines().any(|line| line == "Seccomp:\t2"))
        .collect();
    Ok(json!({
        "threads": filtered.len(),
        "seccomp": filtered.iter().filter(|&&yes| yes).count(),
        "landlock": paravane_confine::landlock_version(),
        "signals": machine.recorded("signals.json")?,
    }))
}

/// The machine of this name, which must be running.
pub fn running(store: &Store, name: &str) -> anyhow::Result<Machine> {
    let machine = store.find(name)?;
    match machine.state()? {
        State::Running { .. } => Ok(machine),
        _ => bail!("machine {name} is not running"),
    }
}

/// `logs`
pub fn logs(args: &arguments::Logs) -> anyhow::Result<Outcome> {
    let machine = Store::open()?.find(&args.name)?;
    let mut log = Log::open(machine.output())?;
    let so_far = log.ends()?;
    if let Some(lines) = args.tail {
        log.skip_to_last(lines, &so_far)?;
    }
    log.copy_to(&so_far, &mut io::stdout().lock())?;
    if !args.follow {
        return Ok(Outcome::Passed);
    }
    loop {
        // Read the state first: everything printed before the end is then read below.
        let state = machine.state()?;
        log.print()?;
        if !matches!(state, State::Running { .. }) {
            return Ok(Outcome::Passed);
        }
        std::thread::sleep(LOOK);
    }
}

/// `stop` succeeds for a machine that has ended already.
pub fn stop(args: &arguments::Stop) -> anyhow::Result<Outcome> {
    each(&args.names, |store, name| {
        let machine = store.find(name)?;
        match machine.state()? {
            State::Running { .. } => end(&machine, args.time),
            State::Exited(_) | State::Died => Ok(()),
            // It may be about to start, once its kernel is built.
            State::Created => bail!("machine {name} is not running"),
        }
    })
}

/// Asks a machine to end, and waits for that.
fn end(machine: &Machine, seconds: u64) -> anyhow::Result<()> {
    let name = &machine.name;
    ask_while_running(machine, &Request::Stop { seconds })?;
    if !machine.wait_gone(Duration::from_secs(seconds) + END)? {
        bail!("machine {name} has not ended in time: `paravane kill {name}` ends it");
    }
    Ok(())
}

/// Sends a request to a machine's monitor until one answers, or the machine has ended: one monitor
/// may have ended already, and the next not listen yet. Returns whether one has answered.
fn ask_while_running(machine: &Machine, request: &Request) -> anyhow::Result<bool> {
    let deadline = Instant::now() + END;
    loop {
        let error = match ask(machine, request) {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        // The machine has ended in the meantime.
        if !matches!(machine.state()?, State::Running { .. }) {
            return Ok(false);
        }
        if !error.is::<Unreachable>() || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(LOOK);
    }
}

/// `restart`
pub fn restart(args: &arguments::Stop) -> anyhow::Result<Outcome> {
    each(&args.names, |store, name| {
        let machine = store.find(name)?;
        if let State::Running { .. } = machine.state()? {
            end(&machine, args.time)?;
        }
        launch(&machine)
    })
}

/// `wait`
pub fn wait(args: &arguments::Names) -> anyhow::Result<Outcome> {
    let store = Store::open()?;
    let machines: anyhow::Result<Vec<_>> = args.names.iter().map(|name| store.find(name)).collect();
    for machine in machines? {
        while !machine.wait_gone(END)? {}
        match machine.state()? {
            State::Exited(code) => super::say(code)?,
            State::Died => bail!(
                "machine {}: its monitor was killed, so it has no exit code",
                machine.name
            ),
            State::Created => bail!("machine {} was not started yet", machine.name),
            State::Running { .. } => bail!(
                "machine {} was started again by another command",
                machine.name
            ),
        }
    }
    Ok(Outcome::Passed)
}

/// `kill`
pub fn kill(args: &arguments::Kill) -> anyhow::Result<Outcome> {
    each(&args.names, |store, name| {
        let machine = running(store, name)?;
        match args.signal {
            Some(number) => match ask_while_running(&machine, &Request::Signal { number })? {
                true => Ok(()),
                false => bail!("machine {name} is not running"),
            },
            None => end_now(&machine),
        }
    })
}

/// Ends a machine at once: through its monitor, or by SIGKILL if the monitor does not answer.
fn end_now(machine: &Machine) -> anyhow::Result<()> {
    let asked = ask_within(machine, &Request::Kill, END);
    if asked.is_ok() && machine.wait_gone(END)? {
        return Ok(());
    }
    let State::Running { pid } = machine.state()? else {
        return Ok(());
    };
    // A restarter would start the machine again. Its monitor ends with it.
    let pid = machine.lives()?.map_or(pid, |lives| lives.restarter);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.with_context(|| {
        format!(
            "machine {}: the process id of its monitor is unknown",
            machine.name
        )
    })?;
    let monitor = pidfd_open(pid, PidfdFlags::empty())?;
    // The state is still locked, so the process id has not been reused.
    if let State::Running { .. } = machine.state()? {
        pidfd_send_signal(&monitor, Signal::KILL)?;
    }
    if machine.wait_gone(END)? {
        Ok(())
    } else {
        bail!(
            "machine {}: its monitor (process {}) does not end; it may wait for a disk, or for a \
             network file system of the host",
            machine.name,
            pid.as_raw_nonzero()
        )
    }
}

/// Removes a machine that has ended, unless another command has removed it or started it again.
pub fn remove_ended(machine: &Machine) -> anyhow::Result<()> {
    if !machine.exists() {
        return Ok(());
    }
    let turn = match machine.turn() {
        Err(_) if !machine.exists() => return Ok(()),
        turn => turn?,
    };
    // On a slow host a process of the machine that is ending can hold the lock for a moment more.
    let other = match machine.state() {
        Ok(State::Running { pid }) => pid != std::process::id() && is_alive(pid),
        _ => false,
    };
    if !other {
        machine.remove()?;
    }
    drop(turn);
    Ok(())
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// `rm`
pub fn rm(args: &arguments::Rm) -> anyhow::Result<Outcome> {
    each(&args.names, |store, name| {
        let machine = store.find(name)?;
        // One whose records cannot be read has no monitor, which would hold its lock.
        if let Ok(State::Running { .. }) = machine.state() {
            if !args.force {
                bail!("machine {name} is running: `paravane stop {name}`, or --force");
            }
            end_now(&machine)?;
        }
        let _turn = machine.turn()?;
        if let Ok(State::Running { .. }) = machine.state() {
            bail!("machine {name} was started meanwhile by another command");
        }
        machine.remove()
    })
}
