//! The section `network`: the hosts that commands may reach, by profile.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use belay_network::{Profiles, UpstreamProxy};

use crate::{Origin, ValueWithOrigin};

/// The section `network`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The profiles: the built-in ones and the operator's.
    pub profiles: Profiles,
    /// Files with certificate authorities of the operator's own, in PEM, which hosts may have besides those that this machine trusts.
    pub authorities: Vec<ValueWithOrigin<PathBuf>>,
    /// The proxy behind which hosts are reached; `None`: directly.
    pub proxy: Option<ValueWithOrigin<UpstreamProxy>>,
    /// The bounds of one command.
    pub limits: NetworkLimits,
    /// The line of each of the operator's profiles, and of its `fetch_only` where it has one.
    pub(crate) lines: BTreeMap<String, ProfileLines>,
}

/// The bounds of one command's network. What goes beyond them is refused or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLimits {
    /// The most bytes in both directions together.
    pub bytes: ValueWithOrigin<u64>,
    /// The most connections.
    pub connections: ValueWithOrigin<u64>,
    /// The most connections at one time.
    pub open_connections: ValueWithOrigin<u64>,
    /// The longest time in which nothing passes through a connection, in seconds.
    pub idle: ValueWithOrigin<u64>,
}

impl Default for NetworkLimits {
    /// More than the installation of a large project needs.
    fn default() -> Self {
        Self {
            bytes: ValueWithOrigin::default_of(16 << 30),
            connections: ValueWithOrigin::default_of(100_000),
            open_connections: ValueWithOrigin::default_of(256),
            idle: ValueWithOrigin::default_of(300),
        }
    }
}

impl Network {
    /// The origin of a profile: its line, or the default of a built-in one.
    pub fn origin_of(&self, profile: &str) -> Origin {
        self.lines.get(profile).map_or(Origin::Default, |lines| Origin::Line(lines.profile))
    }
}

/// The lines of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileLines {
    /// Its own.
    pub(crate) profile: u32,
    /// That of `fetch_only`.
    pub(crate) fetch_only: Option<u32>,
}

/// The place of a line, as the origins of rules name it: `/etc/belay/config.yaml:12`, or `line 12` of a text without a file.
pub(crate) fn place(file: Option<&Path>, line: u32) -> String {
    Origin::Line(line).shown(file)
}

/// The origin that a place stands for; the default where there is none, as of a built-in rule.
pub(crate) fn origin(place: &str) -> Origin {
    let number = place.rsplit([':', ' ']).next().and_then(|number| number.parse().ok());
    number.map_or(Origin::Default, Origin::Line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_line() {
        assert_eq!(place(Some(Path::new("/a:9/b 8.yaml")), 12), "/a:9/b 8.yaml:12");
        for file in [Some(Path::new("/a:9/b 8.yaml")), None] {
            assert_eq!(origin(&place(file, 12)), Origin::Line(12));
        }
        assert_eq!(origin(""), Origin::Default);
    }
}
