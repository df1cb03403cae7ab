// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests with images that are made by hand, good and bad.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use tar::{Builder, Header};

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Builds an image.
struct Maker {
    folder: tempfile::TempDir,
    layers: Vec<Value>,
    diff_ids: Vec<String>,
    architecture: &'static str,
}

impl Maker {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("image/blobs/sha256")).unwrap();
        Maker {
            folder,
            layers: Vec::new(),
            diff_ids: Vec::new(),
            architecture: "amd64",
        }
    }

    fn blob(&self, bytes: &[u8]) -> String {
        let name = digest::of(bytes);
        fs::write(self.image().join(blob_name(&name).unwrap()), bytes).unwrap();
        name
    }

    fn layer(mut self, files: &[(&str, &str)], compress: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let plain = tar(files);
        let digest = self.blob(&compress(&plain));
        self.layers
            .push(json!({ "digest": digest, "mediaType": "x", "size": 1 }));
        self.diff_ids.push(digest::of(&plain));
        self
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn configuration(&self) -> Vec<u8> {
        let config = json!({
            "Env": ["PATH=/opt", "EMPTY=", "none"], "Entrypoint": ["/run"], "Cmd": ["a", "b"],
            "User": "7:8", "WorkingDir": "/srv/work",
        });
        let diff_ids = &self.diff_ids;
        let all = json!({
            "architecture": self.architecture, "os": "linux", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids }, "history": [],
        });
        serde_json::to_vec(&all).unwrap()
    }

    /// Writes index and manifest.
    fn finish(self) -> Self {
        let config = self.blob(&self.configuration());
        let layers = &self.layers;
        let config = json!({ "digest": config, "mediaType": "x", "size": 1 });
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        let manifest = self.blob(&serde_json::to_vec(&manifest).unwrap());
        let platform = |architecture: &str| json!({ "architecture": architecture, "os": "linux" });
        let other = format!("sha256:{}", "0".repeat(64));
        let entry = |digest: &str| json!({ "digest": digest, "mediaType": "x", "size": 1 });
        let of_platform = |digest: &str, architecture: &str| {
            let mut entry = entry(digest);
            entry["platform"] = platform(architecture);
            entry
        };
        let manifests = [
            of_platform(&other, "arm64"),
            of_platform(&manifest, "amd64"),
        ];
        let inner = json!({ "schemaVersion": 2, "manifests": manifests });
        let inner = self.blob(&serde_json::to_vec(&inner).unwrap());
        let index = json!({ "schemaVersion": 2, "manifests": [entry(&inner)] });
        fs::write(self.image().join("index.json"), index.to_string()).unwrap();
        self
    }

    fn get(&self, path: &Path) -> Result<Image, String> {
        let result = local(path, &Cache::at(self.cache()), &Signals::install().unwrap());
        let result = result.map_err(|error| format!("{error:#}"));
        // No outcome leaves unfinished work.
        let left = fs::read_dir(self.cache()).into_iter().flatten().flatten();
        let parts = left.filter(|e| e.file_name().to_string_lossy().starts_with('.'));
        assert_eq!(parts.count(), 0);
        result
    }
}

fn good() -> Maker {
    let zstd = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
    Maker::new()
        .layer(&[("etc/one", "1"), ("etc/two", "2")], gz)
        .layer(&[("etc/.wh.one", ""), ("run", "#!")], zstd)
        .layer(&[("etc/three", "3")], <[u8]>::to_vec)
        .finish()
}

fn check(image: &Image) {
    let read = |name: &str| fs::read_to_string(image.root.join(name)).unwrap();
    assert_eq!(
        (read("etc/two").as_str(), read("etc/three").as_str()),
        ("2", "3")
    );
    assert!(!image.root.join("etc/one").exists());
    assert!(image.root.join("srv/work").is_dir());
    let mode = fs::metadata(image.root.join("run"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
    let words = |list: &[&str]| list.iter().map(|w| OsString::from(*w)).collect::<Vec<_>>();
    let process = &image.process;
    assert_eq!(process.command(Vec::new()), words(&["/run", "a", "b"]));
    assert_eq!(process.command(words(&["c"])), words(&["/run", "c"]));
    assert_eq!(process.variables().len(), 2);
    assert_eq!(process.user().as_deref(), Some("7:8"));
    assert_eq!(process.folder(), Some("/srv/work".into()));
}

#[test]
fn a_layout_is_unpacked_once() {
    let maker = good();
    let image = maker.get(&maker.image()).unwrap();
    check(&image);
    fs::write(image.root.join("mark"), "").unwrap();
    assert!(
        maker
            .get(&maker.image())
            .unwrap()
            .root
            .join("mark")
            .exists()
    );
    assert_eq!(fs::read_dir(maker.cache()).unwrap().count(), 1);
    let private = fs::metadata(image.root.parent().unwrap())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(private & 0o077, 0);
}

/// Nothing waits for the other end of a pipe.
#[test]
fn a_pipe_is_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = Source::open(&pipe).unwrap_err().to_string();
    assert_eq!(error, "neither a file nor a folder");
}

#[test]
fn an_archive_of_one() {
    let maker = good();
    let archive = maker.folder.path().join("archive.tar");
    let mut builder = Builder::new(fs::File::create(&archive).unwrap());
    builder.append_dir_all(".", maker.image()).unwrap();
    builder.finish().unwrap();
    check(&maker.get(&archive).unwrap());
}

/// The older format of docker save: a folder for each layer, and links between identical layers.
#[test]
fn an_archive_of_docker_save() {
    let maker = Maker::new()
        .layer(
            &[("etc/one", "1"), ("etc/two", "2"), ("etc/three", "3")],
            <[u8]>::to_vec,
        )
        .layer(&[("etc/.wh.one", ""), ("run", "#!")], <[u8]>::to_vec);
    let archive = maker.folder.path().join("saved.tar");
    let mut builder = Builder::new(fs::File::create(&archive).unwrap());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = Header::new_ustar();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).unwrap();
    };
    let layer = |n: usize| {
        fs::read(
            maker
                .image()
                .join(blob_name(maker.layers[n]["digest"].as_str().unwrap()).unwrap()),
        )
        .unwrap()
    };
    add("a/layer.tar", &layer(0));
    add("c.json", &maker.configuration());
    add("b/layer.tar", &layer(1));
    let manifest = json!([{
        "Config": "c.json", "RepoTags": ["x:y"], "Layers": ["link/layer.tar", "b/layer.tar"]
    }]);
    add("manifest.json", manifest.to_string().as_bytes());
    let mut header = Header::new_ustar();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder
        .append_link(&mut header, "link/layer.tar", "../a/layer.tar")
        .unwrap();
    builder.finish().unwrap();
    drop(builder);
    check(&maker.get(&archive).unwrap());
}

#[test]
fn what_is_damaged_is_told_and_leaves_nothing() {
    // A layer, and then a document, that does not match its digest.
    let maker = good();
    let layer = maker.layers[2]["digest"].as_str().unwrap();
    let path = maker.image().join(blob_name(layer).unwrap());
    let other = tar(&[("etc/three", "4")]);
    fs::write(&path, &other).unwrap();
    assert!(
        maker
            .get(&maker.image())
            .unwrap_err()
            .contains("layer 3 of 3 is damaged")
    );
    fs::write(&path, &other[..700]).unwrap();
    assert!(
        maker
            .get(&maker.image())
            .unwrap_err()
            .contains("layer 3 of 3")
    );
    fs::remove_file(&path).unwrap();
    assert!(
        maker
            .get(&maker.image())
            .unwrap_err()
            .contains("the image has no blobs/sha256/")
    );
    let config = blob_name(&digest::of(&maker.configuration())).unwrap();
    fs::write(maker.image().join(config), "{}").unwrap();
    assert!(
        maker
            .get(&maker.image())
            .unwrap_err()
            .contains("digest does not match")
    );
    assert_eq!(fs::read_dir(maker.cache()).unwrap().count(), 0);

    let mut maker = Maker::new();
    maker.architecture = "arm64";
    let maker = maker.finish();
    assert!(
        maker
            .get(&maker.image())
            .unwrap_err()
            .contains("linux/arm64: linux/amd64 is needed")
    );
    let index = |digest: &str| {
        let manifest = json!({ "digest": digest, "mediaType": "x", "size": 1 });
        json!({ "schemaVersion": 2, "manifests": [manifest] }).to_string()
    };
    for (index, part) in [
        (String::new(), "damaged"),
        ("{}".to_string(), "damaged"),
        (
            r#"{"schemaVersion":2,"manifests":[]}"#.to_string(),
            "contains no image for linux/amd64",
        ),
        (index("sha256:../../../etc/passwd"), "damaged"),
        (index("md5:0"), "not a SHA-256 digest"),
    ] {
        fs::write(maker.image().join("index.json"), &index).unwrap();
        let why = maker.get(&maker.image()).unwrap_err();
        assert!(why.contains(part), "{index}: {why}");
    }
    let file = maker.folder.path().join("file");
    fs::write(&file, [7; 5000]).unwrap();
    assert!(maker.get(&file).unwrap_err().contains("not a tar archive"));
    fs::write(&file, tar(&[("x", "")])).unwrap();
    assert!(maker.get(&file).unwrap_err().contains("neither an image"));
    assert!(
        maker
            .get(Path::new("/nonexistent"))
            .unwrap_err()
            .contains("No such file")
    );
}
