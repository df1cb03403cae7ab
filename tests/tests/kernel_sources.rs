// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's newest source of Linux may be newer than the port. A kernel is still built, of another
//! version that apt knows. apt and dpkg-deb are scripts here, and the kernel of the older source is
//! built already.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Run};
use paravane_tests::{linux, source_root};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARBALL: &str = "linux-source-6.12.tar.xz";

/// `apt-cache madison PACKAGE`: the table that the test has written.
const APT_CACHE: &str = "#!/bin/sh
    cat ${0%/*}/table
";
/// `apt-get -q download PACKAGE[=VERSION]`: a package that names the folder of its tarball.
const APT_GET: &str = "#!/bin/sh
    case $3 in *=*) version=${3#*=} ;; *) version=6.12.999-1 ;; esac
    echo $version >> ${0%/*}/asked
    [ -e ${0%/*}/$version ] || { echo \"E: Version '$version' was not found\" >&2; exit 100; }
    echo ${0%/*}/$version > ./package.deb
";
/// `dpkg-deb --extract PACKAGE DIR`
const DPKG_DEB: &str = "#!/bin/sh
    mkdir -p $3/usr/src && cp -P $(cat $2)/*.xz $3/usr/src/
";

/// A cache of its own, and programs in the place of apt.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    /// apt knows 6.12.999, which has none of Linux' files, and these versions.
    fn new(versions: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Host { folder };
        for (name, script) in [
            ("apt-cache", APT_CACHE),
            ("apt-get", APT_GET),
            ("dpkg-deb", DPKG_DEB),
        ] {
            let path = host.path(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let table = |versions: &[&str]| {
            let lines = versions.iter().map(|version| {
                format!("linux-source-6.12 | {version} | http://example.org main Packages\n")
            });
            lines.collect::<String>()
        };
        let text = table(&["6.12.999-1"]) + &table(versions);
        fs::write(host.path("table"), text).unwrap();

        host.offer_unfit(999);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Offers a source that has none of Linux' files as 6.12.N-1.
    fn offer_unfit(&self, number: u32) {
        let (tree, offer) = (self.path("linux"), self.path(&format!("6.12.{number}-1")));
        fs::create_dir_all(&tree).unwrap();
        fs::create_dir(&offer).unwrap();
        let makefile = format!("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = {number}\n");
        fs::write(tree.join("Makefile"), makefile).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(self.folder.path()).arg("-cJf");
        let status = tar.arg(offer.join(TARBALL)).arg("linux").status();
        assert!(status.unwrap().success());
    }

    /// Offers the real source as this version, and puts the kernel of it into the cache.
    fn offer(&self, version: &str, kernel: &Path) {
        let built = kernel.parent().unwrap();
        let kernels = built.parent().unwrap();
        let installed = Path::new("/usr/src").join(TARBALL);
        let tarball = if installed.is_file() {
            installed
        } else {
            kernels.join("source").join(TARBALL)
        };
        fs::create_dir(self.path(version)).unwrap();
        symlink(tarball, self.path(version).join(TARBALL)).unwrap();
        let cache = self.path("cache/paravane/kernel");
        fs::create_dir_all(&cache).unwrap();
        symlink(built, cache.join(built.file_name().unwrap())).unwrap();
    }

    fn build(&self, arguments: &[&str]) -> Run {
        let path = std::env::var("PATH").unwrap();
        program::finish(
            program::command()
                .args(["kernel", "build"])
                .args(arguments)
                .env("XDG_CACHE_HOME", self.path("cache"))
                .env("PATH", format!("{}:{path}", self.folder.path().display())),
        )
    }

    /// The versions that apt was asked for.
    fn asked(&self) -> String {
        fs::read_to_string(self.path("asked")).unwrap_or_default()
    }
}

/// The first patch of the port.
fn first_patch() -> String {
    let series = source_root().join("guest/linux/patches/series");
    let series = fs::read_to_string(series).unwrap();
    series.lines().find(|l| l.starts_with('0')).unwrap().into()
}

#[test]
fn a_source_that_is_too_new_is_left_for_another_one() {
    let kernel = linux::kernel();
    let host = Host::new(&["6.12.998-1", "6.12.997-1"]);
    host.offer("6.12.998-1", &kernel);
    let run = host.build(&["--update"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(host.asked(), "6.12.999-1\n6.12.998-1\n", "{run:?}");
    let said = format!("{} does not apply to Linux 6.12.999", first_patch());
    let line = run.stderr.lines().find(|line| line.contains(&said));
    assert!(line.unwrap().contains("6.12.998-1"), "{run:?}");
    assert!(run.stdout.contains("(from the cache)"), "{run:?}");

    // The other one is kept: the next build asks no server.
    if !Path::new("/usr/src").join(TARBALL).is_file() {
        let run = host.build(&[]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        assert_eq!(host.asked(), "6.12.999-1\n6.12.998-1\n");
    }
}

#[test]
fn without_another_source_the_patch_is_named() {
    let host = Host::new(&[]);
    let says = |run: &Run, parts: &[&str]| {
        assert_eq!(run.code, 2, "{run:?}");
        let last = run.stderr.lines().last().unwrap();
        for part in parts {
            assert!(last.contains(part), "no {part:?} in {last:?}: {run:?}");
        }
    };
    let patch = first_patch();
    let run = host.build(&["--update"]);
    says(&run, &[&patch, "6.12.999", "--source", "update paravane"]);

    // A source that the user has chosen is not replaced.
    let host = Host::new(&["6.12.998-1"]);
    let chosen = host.path("6.12.999-1").join(TARBALL);
    let run = host.build(&["--source", chosen.to_str().unwrap()]);
    says(&run, &[&patch, "6.12.999", "--source"]);
    assert_eq!(host.asked(), "");

    // apt's list is longer than its archive.
    let run = host.build(&["--update"]);
    says(&run, &[&patch, "6.12.999", "'6.12.998-1' was not found"]);
}

#[test]
fn only_some_other_sources_are_tried() {
    let numbers = [996, 995, 994, 993, 992];
    let all = numbers.map(|number| format!("6.12.{number}-1"));
    let host = Host::new(&all.each_ref().map(String::as_str));
    for number in numbers {
        host.offer_unfit(number);
    }
    let run = host.build(&["--update"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(host.asked().lines().count(), 5, "{run:?}");
}
