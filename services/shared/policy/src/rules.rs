//! The rules of one phase, compiled.

use crate::{
    ChangeFact,
    document::{Phase, Rule},
    patterns::{Hits, Patterns, PatternsBuilder, Separator, glob},
    protect,
};

/// The rules of one phase, in the order in which they were written.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Where each stands in the document.
    places: Vec<usize>,
    programs: Patterns,
    arguments: Patterns,
    paths: Patterns,
}

/// A glob that is none.
#[derive(Debug)]
pub(crate) struct BadGlob {
    /// The field, such as `rules[2].paths[0]`; `rules` when all of them together are too much.
    pub(crate) field: String,
    pub(crate) why: String,
}

impl Rules {
    /// Compiles those of a document's rules that are asked in this phase.
    pub(crate) fn compile(document: &[Rule], phase: Phase) -> Result<Self, Vec<BadGlob>> {
        let places: Vec<usize> = (0..document.len()).filter(|place| document[*place].on == phase).collect();
        let mut bad = Vec::new();
        let programs = condition(document, &places, "programs", Separator::Nothing, |rule| &rule.programs, &mut bad);
        let arguments = condition(document, &places, "arguments", Separator::Nothing, |rule| &rule.arguments, &mut bad);
        let paths = condition(document, &places, "paths", Separator::Slash, |rule| &rule.paths, &mut bad);
        match (programs, arguments, paths) {
            (Some(programs), Some(arguments), Some(paths)) if bad.is_empty() => {
                Ok(Self { places, programs, arguments, paths })
            }
            _ => Err(bad),
        }
    }

    /// Which rules a command's program meets.
    pub(crate) fn programs(&self, command: &[String]) -> Hits {
        self.programs.hits(self.places.len(), command.first().map(|program| base_name(program)))
    }

    /// Which rules a command's arguments meet.
    pub(crate) fn arguments(&self, command: &[String]) -> Hits {
        self.arguments.hits(self.places.len(), command.iter().skip(1).map(String::as_str))
    }

    /// Which rules a path meets.
    pub(crate) fn path(&self, path: &str, hits: &mut Hits) {
        self.paths.match_any([path], hits);
    }

    /// Room for the hits of a path.
    pub(crate) fn room(&self) -> Hits {
        Hits::new(self.places.len())
    }

    /// Each rule's place among these and in the document.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        self.places.iter().copied().enumerate()
    }
}

/// One condition of all rules of a phase.
fn condition(
    document: &[Rule],
    places: &[usize],
    name: &str,
    separator: Separator,
    entries: fn(&Rule) -> &[String],
    bad: &mut Vec<BadGlob>,
) -> Option<Patterns> {
    let mut builder = PatternsBuilder::default();
    for (index, place) in places.iter().enumerate() {
        for (entry, pattern) in entries(&document[*place]).iter().enumerate() {
            match spellings(pattern, separator).map(|pattern| glob(pattern, separator)).collect::<Result<Vec<_>, _>>() {
                Ok(globs) => globs.into_iter().for_each(|glob| builder.add(index, glob)),
                Err(error) => {
                    let field = format!("rules[{place}].{name}[{entry}]");
                    bad.push(BadGlob { field, why: format!("is not a glob: {}", error.kind()) });
                }
            }
        }
    }
    let refuse = |error: globset::Error| BadGlob {
        field: "rules".to_owned(),
        why: format!("have too many globs: {}", error.kind()),
    };
    builder.build().map_err(|error| bad.push(refuse(error))).ok()
}

/// A path's glob that means all that is in a folder means the folder too: whoever allows or forbids `build/**` means its making as well.
pub(crate) fn spellings(pattern: &str, separator: Separator) -> impl Iterator<Item = &str> {
    let folder = pattern.strip_suffix("/**").filter(|folder| separator == Separator::Slash && !folder.is_empty());
    std::iter::once(pattern).chain(folder)
}

/// A program's name without its folder.
pub(crate) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a list is no condition, or names the word.
pub(crate) fn names(list: &[String], word: &str) -> bool {
    list.is_empty() || list.iter().any(|name| name == word)
}

/// Whether a rule's conditions on the kind and the flags of a change are met.
pub(crate) fn fits_change(rule: &Rule, change: &ChangeFact<'_>, protected: bool) -> bool {
    let has = |flag: &String| change.flags.contains(flag) || (protected && flag == protect::PROTECTED);
    (rule.changes.is_empty() || rule.changes.contains(&change.kind))
        && (rule.flags.is_empty() || rule.flags.iter().any(has))
}
