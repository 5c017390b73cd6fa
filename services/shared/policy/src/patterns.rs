//! Globs of many rules in one set, so that a text is matched against all of them at once.

use std::borrow::Cow;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// The characters that a wildcard matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// All but `/`; `**` crosses folders.
    Slash,
    /// All.
    Nothing,
}

/// Parses a glob.
pub(crate) fn glob(pattern: &str, separator: Separator) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(separator == Separator::Slash).backslash_escape(true).build()
}

/// The rules that match a text, by index. Reused from text to text, to avoid allocations.
pub(crate) struct Hits {
    met: Vec<bool>,
    globs: Vec<usize>,
}

impl Hits {
    pub(crate) fn new(rules: usize) -> Self {
        Self { met: vec![false; rules], globs: Vec::new() }
    }

    /// Whether the rule matched.
    pub(crate) fn met(&self, rule: usize) -> bool {
        self.met[rule]
    }
}

/// The globs of one condition of all rules.
#[derive(Clone, Debug)]
pub(crate) struct Patterns {
    set: GlobSet,
    /// The rule of each glob.
    owners: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct PatternsBuilder {
    globs: Vec<Glob>,
    owners: Vec<usize>,
}

impl PatternsBuilder {
    pub(crate) fn add(&mut self, rule: usize, glob: Glob) {
        self.globs.push(glob);
        self.owners.push(rule);
    }

    pub(crate) fn build(self) -> Result<Patterns, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for glob in self.globs {
            set.add(glob);
        }
        Ok(Patterns { set: set.build()?, owners: self.owners })
    }
}

impl Patterns {
    /// The rules, out of `rules`, with a glob that matches one of the texts.
    pub(crate) fn hits<'a>(&self, rules: usize, texts: impl IntoIterator<Item = &'a str>) -> Hits {
        let mut hits = Hits::new(rules);
        self.match_any(texts, &mut hits);
        hits
    }

    /// Sets `hits` to the rules with a glob that matches one of the texts.
    pub(crate) fn match_any<'a>(&self, texts: impl IntoIterator<Item = &'a str>, hits: &mut Hits) {
        hits.met.fill(false);
        if self.set.is_empty() {
            return;
        }
        for text in texts {
            self.set.matches_into(text, &mut hits.globs);
            for glob in &hits.globs {
                hits.met[self.owners[*glob]] = true;
            }
        }
    }
}

/// The path for matching: without `.`, `..` and doubled slashes, which could disguise it. A path that leaves the workspace keeps its leading `..`.
pub(crate) fn plain(path: &str) -> Cow<'_, str> {
    if !path.split('/').any(|name| matches!(name, "" | "." | "..")) {
        return Cow::Borrowed(path);
    }
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." if names.last().is_some_and(|last| *last != "..") => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    Cow::Owned(names.join("/"))
}
