//! What an answer says was left out, and why.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Why something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Binary,
    TooLarge,
    SecretFile,
    OfGit,
    Denied,
    Unreadable,
    OtherFileSystem,
    Changed,
    FileLimit,
    ByteLimit,
    TimeLimit,
    IndexFull,
    IndexFailed,
    RootMissing,
    RootUnreadable,
    RootNotAFolder,
    NoWords,
    AirGapped,
    NoEndpoint,
    SearchFailed,
    PageFailed,
    UrlNotUsable,
}

impl Reason {
    const ALL: [Self; 22] = [
        Self::Binary,
        Self::TooLarge,
        Self::SecretFile,
        Self::OfGit,
        Self::Denied,
        Self::Unreadable,
        Self::OtherFileSystem,
        Self::Changed,
        Self::FileLimit,
        Self::ByteLimit,
        Self::TimeLimit,
        Self::IndexFull,
        Self::IndexFailed,
        Self::RootMissing,
        Self::RootUnreadable,
        Self::RootNotAFolder,
        Self::NoWords,
        Self::AirGapped,
        Self::NoEndpoint,
        Self::SearchFailed,
        Self::PageFailed,
        Self::UrlNotUsable,
    ];

    /// Its name in results.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::TooLarge => "too_large",
            Self::SecretFile => "secret_file",
            Self::OfGit => "of_git",
            Self::Denied => "denied_by_policy",
            Self::Unreadable => "unreadable",
            Self::OtherFileSystem => "other_file_system",
            Self::Changed => "changed",
            Self::FileLimit => "file_limit",
            Self::ByteLimit => "byte_limit",
            Self::TimeLimit => "time_limit",
            Self::IndexFull => "index_full",
            Self::IndexFailed => "index_failed",
            Self::RootMissing => "root_missing",
            Self::RootUnreadable => "root_unreadable",
            Self::RootNotAFolder => "root_not_a_folder",
            Self::NoWords => "no_words",
            Self::AirGapped => "air_gapped",
            Self::NoEndpoint => "no_endpoint",
            Self::SearchFailed => "search_failed",
            Self::PageFailed => "page_failed",
            Self::UrlNotUsable => "url_not_usable",
        }
    }

    /// The reason of this name.
    pub(super) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }

    /// What it means, and what to do.
    fn meaning(self) -> &'static str {
        match self {
            Self::Binary => "files with a NUL byte are not text",
            Self::TooLarge => "larger files are not searched: 1 MiB is the limit",
            Self::SecretFile => "files of this name hold keys or passwords",
            Self::OfGit => "the files of `.git` are not searched",
            Self::Denied => "the policy does not let this call read it",
            Self::Unreadable => "it could not be read",
            Self::OtherFileSystem => {
                "what is mounted in a folder of documents is not searched: name it in `research.roots`"
            }
            Self::Changed => "it was found, and was changed before it could be cited: ask again",
            Self::FileLimit => "there are more files than are read: narrow `path`, or ask deeper",
            Self::ByteLimit => "the files have more bytes than are read: narrow `path`, or ask deeper",
            Self::TimeLimit => {
                "there was no time for more files: ask again, as what a folder of documents has is kept, or narrow `path`"
            }
            Self::IndexFull => "its index has no more room",
            Self::IndexFailed => "its index cannot be used",
            Self::RootMissing => "the folder is not there: see `research.roots` in the runner's settings",
            Self::RootUnreadable => "the folder cannot be read: see `research.roots` in the runner's settings",
            Self::RootNotAFolder => "it is not a folder: see `research.roots` in the runner's settings",
            Self::NoWords => "the question has no letter or digit to look for",
            Self::AirGapped => "the runner's settings say `air_gapped: true`: nothing beyond this machine is reached",
            Self::NoEndpoint => "the runner's settings have no search endpoint: ask the operator for `research.web`",
            Self::SearchFailed => "the search endpoint has not answered as it should",
            Self::PageFailed => "the page was not read, and is cited as the search endpoint describes it",
            Self::UrlNotUsable => "the search endpoint has named a URL that cannot be asked for",
        }
    }
}

/// Where something was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Workspace,
    Root(String),
    Web,
}

/// What was left out, by place and reason.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut(BTreeMap<(Place, Reason), Entry>);

#[derive(Clone, Debug, Default)]
struct Entry {
    count: u64,
    /// One of them.
    example: Option<String>,
    /// What went wrong with it.
    detail: Option<String>,
}

impl LeftOut {
    /// Adds something, which is counted.
    pub(super) fn add(&mut self, place: &Place, reason: Reason, what: impl Into<String>) {
        self.add_many(place, reason, 1, Some(what.into()));
    }

    /// Adds many.
    pub(super) fn add_many(&mut self, place: &Place, reason: Reason, count: u64, example: Option<String>) {
        let entry = self.0.entry((place.clone(), reason)).or_default();
        entry.count += count;
        entry.example = entry.example.take().or(example);
    }

    /// Says that a bound was reached, or that a place was left out as a whole.
    pub(super) fn say(&mut self, place: &Place, reason: Reason) {
        self.0.entry((place.clone(), reason)).or_default();
    }

    /// The same with what went wrong.
    pub(super) fn say_why(&mut self, place: &Place, reason: Reason, detail: impl Into<String>) {
        self.0.entry((place.clone(), reason)).or_default().detail = Some(detail.into());
    }

    pub(super) fn append(&mut self, other: Self) {
        for ((place, reason), entry) in other.0 {
            let own = self.0.entry((place, reason)).or_default();
            own.count += entry.count;
            own.example = own.example.take().or(entry.example);
            own.detail = own.detail.take().or(entry.detail);
        }
    }

    /// As results have it.
    pub(super) fn shown(&self) -> Vec<Value> {
        let shown = |((place, reason), entry): (&(Place, Reason), &Entry)| {
            let message = match &entry.detail {
                Some(detail) => format!("{}: {detail}", reason.meaning()),
                None => reason.meaning().to_owned(),
            };
            let source = if *place == Place::Web { "web" } else { "documentation" };
            let mut shown = json!({"source": source, "reason": reason.word(), "message": message});
            if let Place::Root(name) = place {
                shown["root"] = name.as_str().into();
            }
            if entry.count > 0 {
                shown["count"] = entry.count.into();
            }
            if let Some(example) = &entry.example {
                shown["example"] = example.as_str().into();
            }
            shown
        };
        self.0.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_counted_with_its_reason() {
        let mut left_out = LeftOut::default();
        let root = Place::Root("docs".to_owned());
        left_out.add(&Place::Workspace, Reason::Binary, "a.png");
        left_out.add(&Place::Workspace, Reason::Binary, "b.png");
        let mut other = LeftOut::default();
        other.say(&root, Reason::TimeLimit);
        other.say_why(&Place::Web, Reason::SearchFailed, "no answer");
        left_out.append(other);
        let shown = left_out.shown();
        assert_eq!(
            (&shown[0]["count"], &shown[0]["example"], &shown[0]["reason"]),
            (&json!(2), &json!("a.png"), &json!("binary"))
        );
        assert_eq!((&shown[1]["root"], &shown[1]["count"]), (&json!("docs"), &Value::Null));
        assert!(shown[2]["source"] == "web" && shown[2]["message"].as_str().unwrap().ends_with(": no answer"));
    }

    #[test]
    fn each_reason_has_a_name_of_its_own() {
        for reason in Reason::ALL {
            assert_eq!(Reason::named(reason.word()), Some(reason));
        }
        assert_eq!(Reason::named("other"), None);
    }
}
