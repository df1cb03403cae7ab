// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From options to what they mean.

use crate::arguments::{self, CommandOptions, MachineOptions, Run};
use anyhow::{Context, bail};
use paravane_agent_protocol::Exec;
use paravane_images::oci;
use paravane_machine as machine;
use paravane_machine::agent::Terminal;
use paravane_machine::spec::{Disk, DiskDevice, DiskFormat, DiskMode, Spec, Word};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The command if the options name none.
const SHELL: &str = "/bin/sh";

/// The machine that the options describe, whatever folder it is started from.
pub fn spec(args: &MachineOptions) -> anyhow::Result<Spec> {
    let absolute = |path: &Option<PathBuf>| path.as_deref().map(std::path::absolute).transpose();
    for word in &args.append {
        if word.contains(|c: char| c.is_control()) {
            bail!("--append: a control character in the kernel's command line");
        }
    }
    let image = args.image.as_deref().map(|word| oci::get(word, args.pull));
    let image = image.transpose().context("--image")?;
    let root = image.as_ref().map(|image| Disk {
        file: image.root.clone(),
        mode: DiskMode::ReadOnly,
        device: DiskDevice::Virtio,
        format: DiskFormat::Named,
    });
    let process = image.map(|image| image.process).unwrap_or_default();
    if args.console.len() > Spec::CONSOLES {
        bail!("--console: at most {} are possible", Spec::CONSOLES);
    }
    let volumes = each(&args.volume, "--volume", machine::volume)?;
    machine::check_volumes(&volumes).context("--volume")?;
    let spec = Spec {
        kernel: kernel(args.kernel.as_deref()).context("--kernel")?,
        initrd: absolute(&args.initrd).context("--initrd")?,
        append: args.append.clone(),
        hypervisor: args.hypervisor,
        cpus: args.cpus,
        memory_mib: args.memory,
        spaces: args.spaces,
        volumes,
        rootfs: each(args.rootfs.as_slice(), "--rootfs", machine::root)?
            .pop()
            .or(root),
        init: args.init,
        disks: each(&args.disk, "--disk", machine::disk)?,
        net: machine::net(&args.net, &args.publish)?,
        card: machine::card_attributes(&args.card).context("--card")?,
        bus: args.bus.as_ref().map(ToString::to_string),
        publish: args.publish.iter().map(ToString::to_string).collect(),
        metrics: absolute(&args.metrics).context("--metrics")?,
        consoles: args
            .console
            .iter()
            .map(std::path::absolute)
            .collect::<Result<_, _>>()
            .context("--console")?,
        debuggable: args.debuggable,
        stats: args.count_calls,
        layer: args.layer,
        restart: args.restart,
        timeout: args.timeout,
        command: process
            .command(words(&args.command)?)
            .into_iter()
            .map(Word)
            .collect(),
        env: [process.variables(), variables(&args.command.env)?]
            .concat()
            .into_iter()
            .map(|(key, value)| (Word(key), Word(value)))
            .collect(),
        workdir: args.command.workdir.clone().or_else(|| process.folder()),
        user: args.command.user.clone().or_else(|| process.user()),
        // An image's signal that is none of these asks an init, which no command is.
        stop_signal: args
            .stop_signal
            .or_else(|| arguments::signal(process.stop_signal()?).ok()),
        interactive: args.interactive,
        tty: args.tty,
        without: args.without.clone(),
    };
    machine::check_card(&spec)?;
    Ok(spec)
}

/// `FILE`, or `with:NAME[,NAME...]`.
fn kernel(word: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let Some(word) = word else {
        return Ok(None);
    };
    let Some(names) = word.to_str().and_then(|word| word.strip_prefix("with:")) else {
        return Ok(Some(std::path::absolute(word)?));
    };
    let parts: Vec<String> = names.split(',').map(str::to_string).collect();
    match paravane_kernel::locate_with(&parts)? {
        Some(files) => Ok(Some(files.vmlinux)),
        None => {
            bail!("no kernel with {names} has been built: `paravane kernel build --with {names}`")
        }
    }
}

fn each<T>(
    words: &[String],
    option: &str,
    read: fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    words
        .iter()
        .map(|word| read(word).with_context(|| format!("{option} {word}")))
        .collect()
}

/// Whether the command of `run` gets our terminal.
pub fn at_terminal(args: &Run) -> anyhow::Result<bool> {
    terminal(args.machine.tty, args.machine.command.command.is_empty())
}

/// Whether a command does that asks for it or not, and is a shell or not.
fn terminal(asked: bool, shell: bool) -> anyhow::Result<bool> {
    let there = Terminal::is_there();
    if asked && !there {
        bail!("--tty: standard input and output are not a terminal");
    }
    Ok(asked || (shell && there))
}

/// What the agent runs for a machine.
pub fn command(spec: &Spec, terminal: bool) -> Exec {
    let words: Vec<Vec<u8>> = spec.command.iter().map(Word::bytes).collect();
    build(
        words,
        environment(spec).collect(),
        spec.workdir.as_deref(),
        spec.user.as_deref(),
        terminal,
    )
}

/// What the agent runs for `exec` in a machine: with the environment, folder and user of its
/// own command, unless the options say others.
pub fn exec(args: &CommandOptions, tty: bool, spec: &Spec) -> anyhow::Result<Exec> {
    let terminal = terminal(tty, args.command.is_empty())?;
    let command = words(args)?.into_iter().map(OsString::into_vec).collect();
    let given = variables(&args.env)?
        .into_iter()
        .map(|(key, value)| (key.into_vec(), value.into_vec()));
    let env = environment(spec).chain(given).collect();
    Ok(build(
        command,
        env,
        args.workdir.as_deref().or(spec.workdir.as_deref()),
        args.user.as_deref().or(spec.user.as_deref()),
        terminal,
    ))
}

/// The variables of a machine's command.
fn environment(spec: &Spec) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
    let pairs = spec.env.iter();
    pairs.map(|(key, value)| (key.bytes(), value.bytes()))
}

fn build(
    mut argv: Vec<Vec<u8>>,
    mut env: Vec<(Vec<u8>, Vec<u8>)>,
    cwd: Option<&Path>,
    user: Option<&str>,
    terminal: bool,
) -> Exec {
    if argv.is_empty() {
        argv.push(SHELL.into());
        if terminal {
            // A login shell, which reads the profile.
            argv.push(b"-l".to_vec());
        }
    }
    if let (true, Some(term)) = (terminal, std::env::var_os("TERM")) {
        env.insert(0, (b"TERM".to_vec(), term.into_vec()));
    }
    Exec {
        argv,
        env,
        cwd: cwd.map(|path| path.as_os_str().as_bytes().to_vec()),
        user: user.map(str::to_string),
        terminal: terminal.then(Terminal::size),
        input: true,
    }
}

fn words(args: &CommandOptions) -> anyhow::Result<Vec<OsString>> {
    if args.command.first().is_some_and(|name| name.is_empty()) {
        bail!("the command's name is empty");
    }
    Ok(args.command.clone())
}

fn variables(words: &[OsString]) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let mut all = Vec::new();
    for word in words {
        all.extend(variable(word, |name| std::env::var_os(name))?);
    }
    Ok(all)
}

/// One `--env`.
fn variable(
    word: &OsStr,
    own: impl Fn(&OsStr) -> Option<OsString>,
) -> anyhow::Result<Option<(OsString, OsString)>> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=');
    if bytes.is_empty() || at == Some(0) {
        bail!("--env {}: KEY=VALUE is expected", word.to_string_lossy());
    }
    Ok(match at {
        Some(at) => {
            let (key, value) = bytes.split_at(at);
            let value = value.get(1..).unwrap_or_default();
            Some((
                OsStr::from_bytes(key).into(),
                OsStr::from_bytes(value).into(),
            ))
        }
        None => own(word).map(|value| (word.into(), value)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_their_values() {
        let own = |name: &OsStr| (name == "HERE").then(|| OsString::from("x"));
        let pair = |key: &str, value: &str| Some((OsString::from(key), OsString::from(value)));
        let of = |word: &str| variable(OsStr::new(word), own).unwrap();
        assert_eq!(of("A=1=2"), pair("A", "1=2"));
        assert_eq!(of("A="), pair("A", ""));
        assert_eq!(of("HERE"), pair("HERE", "x"));
        assert_eq!(of("GONE"), None);
        assert!(variable(OsStr::new("=1"), own).is_err());
        assert!(variable(OsStr::new(""), own).is_err());
    }
}
