//! `belay-convert FILE`: prints a plan, and on standard error what was left out of it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use belay_converters::{Conversion, Format, convert};
use clap::{Parser, ValueEnum};

/// Converts a workflow of GitHub Actions, Conductor or Argo Workflows to a plan of Belay.
///
/// Prints the plan on standard output, and on standard error each part of the file that has no place in it, with its line and what to do instead. Exit codes: 0
/// converted, also when something was left out; 1 the file cannot be read or converted; 2 usage error.
#[derive(Parser)]
#[command(name = "belay-convert")]
struct Arguments {
    /// The workflow file.
    file: PathBuf,
    /// The format; without it, it follows from the file.
    #[arg(long, value_enum)]
    from: Option<From>,
    /// The file for the plan, instead of standard output: YAML, or JSON when it ends with `.json`.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    Github,
    Conductor,
    Argo,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(left_out) => {
            eprint!("{left_out}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("belay-convert: {}: {message}", arguments.file.display());
            ExitCode::FAILURE
        }
    }
}

/// Converts the file, writes the plan, and returns the lines about what was left out.
fn run(arguments: &Arguments) -> Result<String, String> {
    let text = fs::read_to_string(&arguments.file).map_err(|error| error.to_string())?;
    let format = match arguments.from {
        Some(From::Github) => Format::Github,
        Some(From::Conductor) => Format::Conductor,
        Some(From::Argo) => Format::Argo,
        None => Format::of(&text)
            .ok_or("looks like no workflow of GitHub Actions, Conductor or Argo: name the format with --from")?,
    };
    let name = arguments.file.file_stem().and_then(OsStr::to_str).unwrap_or("plan");
    let Conversion { plan, left_out } = convert(format, &text, name).map_err(|refusal| refusal.to_string())?;
    let is_json = arguments.output.as_deref().and_then(Path::extension) == Some(OsStr::new("json"));
    let written = if is_json { plan.to_json()? } else { plan.to_yaml()? };
    match &arguments.output {
        None => print!("{written}"),
        Some(file) => fs::write(file, written).map_err(|error| format!("{}: {error}", file.display()))?,
    }
    let lines: String = left_out.iter().map(|entry| format!("{entry}\n")).collect();
    Ok(if left_out.is_empty() {
        lines
    } else {
        format!("{} parts have no place in the plan, or another meaning:\n{lines}", left_out.len())
    })
}
