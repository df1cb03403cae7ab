// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run --image`, with images that the test makes.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, small_root, vm};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An archive as `docker save` writes it: busybox, then a layer that hides a file and adds another.
const SAVE: &str = r#"
    set -e
    cd "$1"
    mkdir -p one/bin one/etc two/etc
    cp "$2" one/bin/busybox
    for name in sh cat env id pwd ls touch; do ln -s busybox one/bin/$name; done
    echo old > one/etc/old; echo "web:x:33:44:web:/:/bin/sh" > one/etc/passwd
    touch two/etc/.wh.old; echo new > two/etc/new
    tar -C one -cf one.tar . && tar -C two -cf two.tar .
    sum() { sha256sum < $1 | cut -d ' ' -f 1; }
    printf '{"architecture":"amd64","os":"linux","config":{"Env":["COLOR=blue","PATH=/bin"],
        "Entrypoint":["/bin/sh","-c"],
        "Cmd":["echo $COLOR; pwd; id -u; cat /etc/new; cat /etc/old"],
        "User":"web","WorkingDir":"/srv"},
        "rootfs":{"type":"layers","diff_ids":["sha256:%s","sha256:%s"]}}' \
        $(sum one.tar) $(sum two.tar) > config.json
    printf '[{"Config":"config.json","RepoTags":null,"Layers":["one.tar","two.tar"]}]' \
        > manifest.json
    tar -cf image.tar manifest.json config.json one.tar two.tar
"#;

struct Image {
    folder: tempfile::TempDir,
}

impl Image {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("sh")
            .args(["-c", SAVE, "sh"])
            .args([folder.path(), &small_root::busybox()])
            .status();
        assert!(made.unwrap().success());
        Image { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image.tar")
    }

    fn run(&self, image: &Path, words: &[&str]) -> program::Run {
        let mut command = vm::command(["--image"]);
        command.arg(image).args(words);
        program::finish(command.env("XDG_CACHE_HOME", self.cache()))
    }

    /// A cache of the test's own that contains the kernel.
    fn cache(&self) -> PathBuf {
        let cache = self.folder.path().join("cache");
        let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let own =
            own.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
        if !cache.exists() {
            fs::create_dir_all(cache.join("paravane")).unwrap();
            for name in ["kernel", "tools"] {
                std::os::unix::fs::symlink(
                    own.join("paravane").join(name),
                    cache.join("paravane").join(name),
                )
                .unwrap();
            }
        }
        cache
    }
}

#[test]
fn an_image_runs_as_it_says() {
    let image = Image::new();
    let done = image.run(&image.path(), &[]);
    assert_eq!(done.stdout, "blue\n/srv\n33\nnew\n", "{done:?}");
    assert!(done.stderr.contains("/etc/old"), "{done:?}");
    // Options take precedence over the image.
    let words = [
        "--env",
        "COLOR=red",
        "--user",
        "0",
        "--workdir",
        "/",
        "--",
        "echo $COLOR; pwd; id -u; touch /x; ls /x",
    ];
    let done = image.run(&image.path(), &words);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (0, "red\n/\n0\n/x\n"),
        "{done:?}"
    );
    // Changes are discarded at the end.
    let done = image.run(&image.path(), &["--", "ls /x"]);
    assert_eq!(done.code, 1, "{done:?}");
}

#[test]
fn what_is_no_image_is_refused_in_a_line() {
    let image = Image::new();
    for (path, part) in [
        (Path::new("/nonexistent"), "No such file"),
        (&small_root::busybox(), "not a tar archive"),
        (image.folder.path(), "neither an image"),
        (&image.folder.path().join("one.tar"), "neither an image"),
    ] {
        // A folder without an image has no manifest.
        let _ = fs::remove_file(image.folder.path().join("manifest.json"));
        let done = image.run(path, &["--", "true"]);
        assert_eq!(
            (done.code, done.stderr.lines().count()),
            (2, 1),
            "{path:?}: {done:?}"
        );
        assert!(
            done.stderr.contains("--image: ") && done.stderr.contains(part),
            "{path:?}: {done:?}"
        );
    }
    let images = image.cache().join("paravane/images");
    assert_eq!(fs::read_dir(images).map_or(0, Iterator::count), 0);
}
