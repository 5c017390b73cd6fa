//! The workspace for the rules: its crates, their folders, and their dependencies on each other.

use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand};

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is tests/architecture").to_path_buf()
}

/// A member of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its folder, from the root, with `/`.
    pub(crate) folder: String,
    /// The members it depends on: to run, to build and to test, on every platform.
    pub(crate) imports: Vec<String>,
}

/// The members of the workspace.
pub(crate) fn crates() -> Vec<Crate> {
    let metadata = run(MetadataCommand::new().no_deps().other_options(["--offline".to_owned()]));
    let members = metadata.workspace_packages();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let folder = |manifest: &Path| {
        let folder = manifest.parent().expect("a manifest stands in a folder");
        let folder = folder.strip_prefix(root()).expect("a member stands below the root");
        folder.to_str().expect("the repository's folders have UTF-8 names").to_owned()
    };
    members
        .iter()
        .map(|member| Crate {
            name: member.name.to_string(),
            folder: folder(member.manifest_path.as_std_path()),
            imports: member
                .dependencies
                .iter()
                .map(|dependency| dependency.name.clone())
                .filter(|name| names.contains(&name.as_str()))
                .collect(),
        })
        .collect()
}

/// The whole graph with what each package resolves to, for the platform that the tests run on. Cargo downloads what it lacks, as it does
/// for a build.
pub(crate) fn resolved() -> Metadata {
    let options = ["--locked", "--filter-platform", "host-tuple"];
    run(MetadataCommand::new().other_options(options.map(str::to_owned)))
}

fn run(command: &mut MetadataCommand) -> Metadata {
    let command = command.manifest_path(root().join("Cargo.toml"));
    command.exec().unwrap_or_else(|error| panic!("cargo metadata: {error}"))
}
