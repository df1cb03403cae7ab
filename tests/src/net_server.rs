// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server of the measuring program of `bench net`, on the host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use crate::{linux, program, source_root};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Compiles the measuring program, for the host and for guests.
///
/// # Panics
/// When the compiler fails.
pub fn compile(program: &Path) {
    linux::compile(&source_root().join("bench/net"), program);
}

/// The measuring program, which serves until it is dropped.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts it. Returns its port of the loopback interface, too.
    ///
    /// # Panics
    /// When it does not serve.
    #[must_use]
    pub fn start(program: &Path) -> (Self, u16) {
        // A port that was free a moment ago.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut command = Command::new(program);
        command.arg("serve").arg(port.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(program::first_line(&mut child), "ready\n");
        (Server(child), port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
