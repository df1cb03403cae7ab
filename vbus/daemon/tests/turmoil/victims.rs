// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that are killed at work.

use crate::common::{Daemon, c_example, compiled};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// How many there are at a time.
const MOST: usize = 4;

/// Clients of devices of three classes.
pub struct Victims {
    echo: PathBuf,
    disk: PathBuf,
    _folders: [TempDir; 2],
    socket: PathBuf,
    started: usize,
    all: Vec<Child>,
}

impl Drop for Victims {
    fn drop(&mut self) {
        self.kill_all();
    }
}

impl Victims {
    pub fn new(daemon: &Daemon) -> Self {
        let (first, echo) = c_example();
        let (second, disk) = compiled("disk");
        Victims {
            echo,
            disk,
            _folders: [first, second],
            socket: daemon.socket(),
            started: 0,
            all: Vec::new(),
        }
    }

    pub fn start_all(&mut self) {
        while self.all.len() < MOST {
            self.start();
        }
    }

    fn start(&mut self) {
        let (program, words) = match self.started % 3 {
            0 => (&self.echo, &["lan", "dev", "4000000000"][..]),
            1 => (&self.disk, &["lan", "spare"][..]),
            // Its packets are no frames, but it is a client like the others.
            _ => (&self.echo, &["lan", "net", "4000000000"][..]),
        };
        self.started += 1;
        let child = Command::new(program)
            .arg(&self.socket)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.all.push(child.unwrap());
    }

    fn kill_one(&mut self) {
        let mut victim = self.all.remove(0);
        // It may have ended by itself.
        let _ = victim.kill();
        let _ = victim.wait();
    }

    /// Kills the oldest, and starts another one.
    pub fn replace_one(&mut self) {
        self.kill_one();
        self.start();
    }

    pub fn kill_all(&mut self) {
        while !self.all.is_empty() {
            self.kill_one();
        }
    }
}
