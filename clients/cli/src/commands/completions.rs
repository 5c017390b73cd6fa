//! `belay completions`.

use std::io::Write as _;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{
    args::{Cli, help},
    exit::Exit,
    failure::Failure,
};

/// Print the script that completes commands and flags in a shell
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay completions bash > ~/.local/share/bash-completion/completions/belay"))]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn completions(verb: Completions) -> Result<Exit, Failure> {
    // Into memory first: the generator panics where its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(verb.shell, &mut Cli::command(), "belay", &mut script);
    let mut output = std::io::stdout().lock();
    output.write_all(&script)?;
    output.flush()?;
    Ok(Exit::OK)
}
