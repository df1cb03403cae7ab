// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that an image describes (OCI image specification, config.md), in terms of `run`'s
//! options.

use serde::Deserialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// The part of an image's configuration that describes its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Process {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    /// False if there is no image.
    #[serde(skip)]
    pub(super) of_image: bool,
}

impl Process {
    /// The command line for these arguments: the entry point with them, or with the image's own if
    /// there are none.
    pub fn command(&self, given: Vec<OsString>) -> Vec<OsString> {
        let words = |list: &Option<Vec<String>>| {
            list.iter()
                .flatten()
                .map(OsString::from)
                .collect::<Vec<_>>()
        };
        let mut command = words(&self.entrypoint);
        command.extend(if given.is_empty() {
            words(&self.cmd)
        } else {
            given
        });
        command
    }

    /// The environment variables.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let pairs = self
            .env
            .iter()
            .flatten()
            .filter_map(|text| text.split_once('='));
        pairs
            .filter(|(key, _)| !key.is_empty())
            .map(|(key, value)| (OsString::from(key), OsString::from(value)))
            .collect()
    }

    /// The working folder.
    pub fn folder(&self) -> Option<PathBuf> {
        let named = self
            .working_dir
            .as_deref()
            .filter(|folder| !folder.is_empty());
        named.or(self.of_image.then_some("/")).map(PathBuf::from)
    }

    /// The user to run as.
    pub fn user(&self) -> Option<String> {
        self.user.clone().filter(|user| !user.is_empty())
    }
}
