// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane image build` with a tool that takes for ever: what stays when it is asked to end. Whole images are made by the long tests.

#![allow(clippy::unwrap_used)] // What cannot be set up has failed.

use paravane_tests::program;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// As the real one does, its first process waits for the others, whatever signal it gets.
const TOOL: &str = "#!/bin/sh
    trap : TERM INT HUP
    export folder=${0%/*}
    sh -c 'trap \"echo tidied > $folder/tidied; exit 1\" INT; echo begun > $folder/begun; while :; do sleep 0.05; done'
    exit 1
";

fn wait_for(what: &Path) {
    let begun = Instant::now();
    while !what.exists() {
        assert!(begun.elapsed() < PATIENCE, "{}", what.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_ends_the_tools_and_leaves_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let folder = tempfile::tempdir().unwrap();
        let (tools, images) = (folder.path().join("tools"), folder.path().join("images"));
        fs::create_dir(&tools).unwrap();
        fs::create_dir(&images).unwrap();
        let tool = tools.join("mmdebstrap");
        fs::write(&tool, TOOL).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", tools.display());
        let mut build = program::command()
            .args(["image", "build", "--format", "tar"])
            .arg(images.join("image.tar"))
            .env("PATH", path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(&tools.join("begun"));
        assert_eq!(fs::read_dir(&images).unwrap().count(), 1, "no folder to work in");
        kill_process(Pid::from_child(&build), signal).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = build.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "{signal:?}: it goes on");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(code));
        assert!(
            tools.join("tidied").exists(),
            "{signal:?}: the tool's processes were not asked to end"
        );
        let left: Vec<_> = fs::read_dir(&images).unwrap().collect();
        assert!(left.is_empty(), "{signal:?}: {left:?}");
    }
}
