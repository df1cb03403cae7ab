// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows without figures, and the reasons.

use super::description::Row;
use super::peers::System;
use super::plan::Group;
use crate::arguments::Place;
use paravane_user_io::text;
use serde::Serialize;
use std::fmt;

/// The name of the host among the sides.
const HOST: &str = "host";

/// A group or a row without figures.
#[derive(Debug, Serialize)]
pub struct Failure {
    name: String,
    /// Where it failed: the host, or a system.
    system: &'static str,
    place: Place,
    vcpus: u32,
    why: String,
    #[serde(skip)]
    error: bool,
}

impl Failure {
    /// It could not be measured here.
    pub fn of(group: &Group<'_>, system: System, why: &str) -> Self {
        Failure {
            system: system.name(),
            // A failure of another system is a result and no error.
            error: system.is_own(),
            ..Failure::skipped(group, why)
        }
    }

    /// A row failed on the host, or on a system. The others of its group can have figures.
    pub fn of_row(group: &Group<'_>, row: &Row, system: Option<System>, why: &str) -> Self {
        Failure {
            name: row.name.clone(),
            system: system.map_or(HOST, System::name),
            ..Failure::of(group, system.unwrap_or(System::Paravane), why)
        }
    }

    /// This host has not what it takes.
    pub fn skipped(group: &Group<'_>, why: &str) -> Self {
        Failure {
            name: group.app.name.clone(),
            system: System::Paravane.name(),
            place: group.place,
            vcpus: group.vcpus,
            why: text::one_line(why),
            error: false,
        }
    }

    /// Whether the command has failed because of it.
    pub fn is_error(&self) -> bool {
        self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            name,
            system,
            place,
            vcpus,
            why,
            ..
        } = self;
        let vcpus = text::count(*vcpus as usize, "vCPU");
        write!(
            f,
            "{name} ({system}, {place}, {vcpus}) was not measured: {why}."
        )
    }
}
