//! Plans that are refused, with what a person reads: `tests/fixtures/bad-plans`, one file for each group.

use std::fs;

use belay_plan::Format;
use serde::Deserialize;

use crate::good::root;

/// A plan that is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadPlan {
    /// The problem with it, for people.
    pub name: String,
    /// `yaml`, `json`, or `both`: JSON is YAML too, and has to be refused in the same words.
    #[serde(default = "both")]
    format: String,
    /// The plan. `repeat` says which of its parts are made long.
    plan: String,
    /// By a word of the plan: the text that stands in its place, and how many times.
    #[serde(default)]
    repeat: Vec<Repeat>,
    /// Everything that is wrong, one entry each: the line, the field and the beginning of the message.
    pub expect: Vec<String>,
    /// Whether it is a matter of shape, which the JSON Schema refuses too.
    #[serde(default)]
    pub shape: bool,
}

fn both() -> String {
    "both".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    word: String,
    text: String,
    times: usize,
}

impl BadPlan {
    /// The formats in which it is read.
    ///
    /// # Panics
    /// When the fixture has another word than `yaml`, `json` and `both`.
    pub fn formats(&self) -> &'static [Format] {
        match self.format.as_str() {
            "yaml" => &[Format::Yaml],
            "json" => &[Format::Json],
            "both" => &[Format::Yaml, Format::Json],
            other => panic!("{}: format {other}", self.name),
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        self.repeat
            .iter()
            .fold(self.plan.clone(), |text, repeat| text.replace(&repeat.word, &repeat.text.repeat(repeat.times)))
    }
}

/// All of them, each with its file's name.
///
/// # Panics
/// When a fixture cannot be read.
pub fn plans() -> Vec<(String, BadPlan)> {
    let folder = root().join("tests/fixtures/bad-plans");
    let files = fs::read_dir(folder).expect("the folder exists");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let plans = files.into_iter().flat_map(|file| {
        let text = fs::read_to_string(&file).expect("UTF-8");
        let plans: Vec<BadPlan> =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        plans.into_iter().map(move |plan| (name.clone(), plan))
    });
    plans.collect()
}
