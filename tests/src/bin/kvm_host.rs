// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kvm_host [--cpus N] [--memory MIB] [--seconds N] [--linux] [--file THERE=HERE]...
//! [--program THERE=HERE]... [--disk IMAGE]... SCRIPT...`: runs each script on an emulated host
//! that has KVM, prints its output, and ends with the exit code of the first that fails. `--linux`
//! puts VMI-Linux there as /vmlinux. After `--console`, the host's kernel messages follow.

use paravane_tests::kvm_host::Parts;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("kvm_host: {why}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<u8, String> {
    let mut parts = Parts::new(1);
    let (mut seconds, mut console, mut scripts) = (600, false, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} without a value"));
        let number = |text: String| text.parse().map_err(|e| format!("{text}: {e}"));
        match word.as_str() {
            "--cpus" => parts.cpus = number(value()?)?,
            "--memory" => parts.memory = number(value()?)?,
            "--seconds" => seconds = u64::from(number(value()?)?),
            "--linux" => parts = parts.with_linux(),
            "--console" => console = true,
            "--file" => parts.files.push(pair(&value()?)?),
            "--disk" => parts.disks.push(value()?.into()),
            "--program" => parts.programs.push(pair(&value()?)?),
            _ => scripts.push(word),
        }
    }
    let mut host = parts.start();
    let mut code = 0;
    for script in scripts {
        let reply = host.run(&script, seconds);
        print!("{}", reply.output);
        eprintln!("exit code {}", reply.code);
        if code == 0 {
            code = u8::try_from(reply.code).unwrap_or(125);
        }
    }
    if console {
        print!("{}", host.console());
    }
    Ok(code)
}

fn pair(text: &str) -> Result<(String, PathBuf), String> {
    let (there, here) = text
        .split_once('=')
        .ok_or(format!("{text}: THERE=HERE is expected"))?;
    Ok((there.to_string(), PathBuf::from(here)))
}
