//! Users and groups of this machine, as settings name them.

use std::{fs, path::Path, str::FromStr};

use thiserror::Error;

/// A user, given by number or by a name from `/etc/passwd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

/// A group, given by number or by a name from `/etc/group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub u32);

/// A user or group that this machine does not have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{name}` is not in {file}: use its numeric id if it comes from another directory service")]
pub struct UnknownName {
    name: String,
    file: &'static str,
}

impl FromStr for User {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        number(text, "/etc/passwd").map(Self)
    }
}

impl FromStr for Group {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        number(text, "/etc/group").map(Self)
    }
}

fn number(text: &str, file: &'static str) -> Result<u32, UnknownName> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let listed = fs::read_to_string(Path::new(file)).unwrap_or_default();
    find(&listed, text).ok_or_else(|| UnknownName { name: text.to_owned(), file })
}

/// The number in a line `NAME:PASSWORD:NUMBER:…`.
fn find(listed: &str, name: &str) -> Option<u32> {
    listed.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = (fields.next() == Some(name)).then(|| fields.nth(1))??;
        number.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_given_by_number_or_by_name() {
        let listed = "root:x:0:0:root:/root:/bin/sh\nbelay-gate:x:901:901::/:/bin/false\nbroken\nodd:x:y\n";
        assert_eq!(find(listed, "belay-gate"), Some(901));
        for missing in ["belay", "", "broken", "odd", "x"] {
            assert_eq!(find(listed, missing), None, "{missing:?}");
        }
        assert_eq!("0".parse(), Ok(User(0)));
        assert_eq!("root".parse(), Ok(User(0)));
        assert_eq!("root".parse(), Ok(Group(0)));
        let refused = "no-such-user-here".parse::<User>().unwrap_err().to_string();
        assert!(refused.contains("`no-such-user-here` is not in /etc/passwd"), "{refused}");
    }
}
