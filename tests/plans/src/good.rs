//! Plans that are accepted: the examples of the documentation, and fixtures.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_plan::Format;

/// The repository's root folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is tests/plans").to_path_buf()
}

/// A plan, and where it stands.
pub struct Example {
    /// The file, and for a part of a page its number.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Its text.
    pub text: String,
}

/// Every plan of the documentation and the fixtures that is written to be accepted.
///
/// # Panics
/// When a file cannot be read.
pub fn examples() -> Vec<Example> {
    let mut examples = Vec::new();
    for folder in [
        "docs/examples",
        "docs/examples/blog-post",
        "docs/examples/child-file/parts",
        "docs/examples/research-to-code",
        "tests/fixtures/plans",
    ] {
        let files = fs::read_dir(root().join(folder)).expect("the folder exists");
        let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        for file in files {
            let name = file.display().to_string();
            let format = match file.extension().and_then(|extension| extension.to_str()) {
                Some("json") => Format::Json,
                Some("yaml") => Format::Yaml,
                _ => continue,
            };
            let text = fs::read_to_string(&file).expect("UTF-8");
            // Settings and policies stand beside the plans.
            if text.contains("steps") && !file.ends_with("config.yaml") {
                examples.push(Example { name, format, text });
            }
        }
    }
    let pages =
        ["plans.md", "other-planners.md", "tools.md", "network.md"].map(|page| format!("docs/user-guide/{page}"));
    for page in &pages {
        let text = fs::read_to_string(root().join(page)).expect("UTF-8");
        examples.extend(blocks(page, &text));
    }
    examples
}

/// The plans of a page, except those that it shows as refused.
fn blocks(page: &str, text: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let mut parts = text.split("\n```");
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (kind, text) = block.split_once('\n').unwrap_or((block, ""));
        let format = match kind.split(' ').next() {
            Some("yaml") => Format::Yaml,
            Some("json") => Format::Json,
            _ => continue,
        };
        if text.contains("steps") && !kind.contains("refused") {
            found.push(Example { name: format!("{page} {}", found.len()), format, text: text.to_owned() });
        }
    }
    found
}
