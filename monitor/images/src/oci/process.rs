// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that an image describes (OCI image specification, config.md), in terms of `run`'s
//! options.

use oci_spec::image::{Config, ImageConfiguration};
use std::ffi::OsString;
use std::path::PathBuf;

/// The part of an image's configuration that describes its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// `None` if there is no image.
    config: Option<Config>,
}

impl Process {
    pub(super) fn of(image: &ImageConfiguration) -> Self {
        Process {
            config: Some(image.config().clone().unwrap_or_default()),
        }
    }

    /// The command line for these arguments: the entry point with them, or with the image's own if
    /// there are none.
    pub fn command(&self, given: Vec<OsString>) -> Vec<OsString> {
        let words = |list: fn(&Config) -> &Option<Vec<String>>| {
            let list = self
                .config
                .iter()
                .filter_map(|config| list(config).as_ref());
            list.flatten().map(OsString::from).collect::<Vec<_>>()
        };
        let mut command = words(Config::entrypoint);
        command.extend(if given.is_empty() {
            words(Config::cmd)
        } else {
            given
        });
        command
    }

    /// The environment variables.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let all = self
            .config
            .iter()
            .filter_map(|config| config.env().as_ref());
        let pairs = all.flatten().filter_map(|text| text.split_once('='));
        pairs
            .filter(|(key, _)| !key.is_empty())
            .map(|(key, value)| (OsString::from(key), OsString::from(value)))
            .collect()
    }

    /// The working folder.
    pub fn folder(&self) -> Option<PathBuf> {
        let config = self.config.as_ref()?;
        let named = config.working_dir().as_deref();
        let named = named.filter(|folder| !folder.is_empty());
        Some(named.unwrap_or("/").into())
    }

    /// The name or number of the signal that asks the process to end.
    pub fn stop_signal(&self) -> Option<&str> {
        self.config.as_ref()?.stop_signal().as_deref()
    }

    /// The user to run as.
    pub fn user(&self) -> Option<String> {
        let user = self.config.as_ref()?.user().clone();
        user.filter(|user| !user.is_empty())
    }
}
