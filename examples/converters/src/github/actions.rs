//! Actions of a workflow file, and what takes their place.

/// The way out for an action: by the beginning of its name. The first that fits counts.
const WAYS: [(&str, &str); 20] = [
    ("actions/upload-artifact", "all steps work in one workspace: files are there for the steps that follow"),
    ("actions/download-artifact", "all steps work in one workspace: files of earlier steps are there"),
    ("actions/cache", "the operator keeps caches between commands: `commands.caches` in the settings"),
    ("swatinem/rust-cache", "the operator keeps caches between commands: `commands.caches` in the settings"),
    ("actions/setup-", TOOLCHAIN),
    ("dtolnay/rust-toolchain", TOOLCHAIN),
    ("actions-rs/toolchain", TOOLCHAIN),
    ("actions-rs/cargo", "write the command into a step: `cargo …`"),
    ("actions-rust-lang/setup-rust-toolchain", TOOLCHAIN),
    ("taiki-e/install-action", TOOLCHAIN),
    ("taiki-e/", TOOLCHAIN),
    ("astral-sh/setup-uv", TOOLCHAIN),
    ("pnpm/action-setup", TOOLCHAIN),
    ("oven-sh/setup-bun", TOOLCHAIN),
    ("actions/github-script", "run the script with `node` in a step"),
    ("codecov/", NETWORK),
    ("github/codeql-action", NETWORK),
    ("peaceiris/actions-gh-pages", NETWORK),
    ("softprops/action-gh-release", NETWORK),
    ("docker/", "commands have no container engine: build elsewhere"),
];

const TOOLCHAIN: &str =
    "toolchains are the operator's: commands see /usr and what `commands.read_only` in the settings adds";
const NETWORK: &str =
    "needs a network: write a command with `network: PROFILE`, or do this where the plan was started from";

/// Whether an action only brings the files that the workspace has already.
pub(super) fn is_checkout(action: &str) -> bool {
    name(action).eq_ignore_ascii_case("actions/checkout")
}

/// The action without its version.
pub(super) fn name(action: &str) -> &str {
    action.split('@').next().unwrap_or(action)
}

/// Returns what to do instead of an action.
pub(super) fn instead(action: &str) -> &'static str {
    let name = name(action).to_lowercase();
    match WAYS.iter().find(|(beginning, _)| name.starts_with(beginning)) {
        Some((_, way)) => way,
        None if name.starts_with("./") => "put the commands of its action.yml into the place of the `noop`",
        None if name.starts_with("docker://") => "run the program itself, in the place of the `noop`",
        None => "put a command that does the same into the place of the `noop`, or declare a tool for it",
    }
}
