//! Workflows that others have written and published, drawn by lot, are converted: each plan is accepted, and no key of a file is lost.
//!
//! `published/files.tsv` names each file with its package, its version and its SHA-256; `published/draw.py` has drawn them. Their licences are not Belay's, so
//! nothing of them is in this repository: `published/fetch` fetches the packages once, with the clients of their registries. What a registry does not serve is
//! skipped by name; with `CI=true` that fails.

mod support;

use std::{
    collections::BTreeMap,
    env, fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
};

use belay_converters::{Format, LeftOut};
use sha2::{Digest as _, Sha256};

/// A line of the table.
#[derive(Clone, Debug)]
struct File {
    format: Format,
    registry: String,
    package: String,
    version: String,
    path: String,
    digest: String,
    /// Words of the refusal, where the file is no workflow that can stand alone.
    refused: String,
}

impl File {
    fn read(line: &str) -> Self {
        let [format, registry, package, version, path, digest, refused] = line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("not seven columns: {line}");
        };
        let format = Format::ALL.into_iter().find(|known| known.name() == format).expect("a known format");
        let [registry, package, version, path, digest, refused] =
            [registry, package, version, path, digest, refused].map(str::to_owned);
        Self { format, registry, package, version, path, digest, refused }
    }

    fn name(&self) -> String {
        format!("{}/{}/{}-{}/{}", self.format.name(), self.registry, self.package, self.version, self.path)
    }

    /// The folder for the files of its package.
    fn folder(&self) -> PathBuf {
        let package = self.package.replace('/', "-");
        here().join("../../target/published").join(&self.registry).join(format!("{package}-{}", self.version))
    }

    fn has_arrived(&self) -> bool {
        fs::read(self.folder().join(&self.path)).is_ok_and(|content| digest(&content) == self.digest)
    }
}

enum Verdict {
    Passed(Vec<LeftOut>),
    Failed(String),
    Skipped(String),
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let table = fs::read_to_string(here().join("tests/published/files.tsv")).expect("the table is there");
    let all: Vec<File> = table.lines().map(File::read).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen =
        |file: &&File| filters.is_empty() || filters.iter().any(|filter| file.name().contains(filter.as_str()));
    let chosen: Vec<&File> = all.iter().filter(is_chosen).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        // None of them is ignored beforehand.
        if !arguments.iter().any(|argument| argument == "--ignored") {
            chosen.iter().for_each(|file| println!("{}: test", file.name()));
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let missing = fetch(&chosen);
    let strict = env::var_os("CI").is_some_and(|value| value == "true");
    let ([mut passed, mut failed, mut skipped], mut left_out) = ([0; 3], Vec::new());
    for file in &chosen {
        let verdict = match missing.get(&file.folder()) {
            Some(why) if !file.has_arrived() => Verdict::Skipped(why.clone()),
            _ => catch_unwind(|| judge(file)).unwrap_or_else(|_panic| Verdict::Failed("see above".to_owned())),
        };
        match verdict {
            Verdict::Passed(list) => {
                println!("test {} ... ok", file.name());
                left_out.extend(list.into_iter().map(|entry| (file.format, entry.what)));
                passed += 1;
            }
            Verdict::Skipped(why) if !strict => {
                println!("test {} ... ignored, {}", file.name(), why.replace('\n', "; "));
                skipped += 1;
            }
            Verdict::Failed(why) | Verdict::Skipped(why) => {
                println!("{why}\ntest {} ... FAILED", file.name());
                failed += 1;
            }
        }
    }
    if failed + skipped == 0
        && passed == all.len()
        && let Err(why) = compare(&left_out)
    {
        println!("{why}\ntest what is left out ... FAILED");
        failed += 1;
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fetches what is not here yet, the registries side by side, and returns why packages could not be had, by their folders.
fn fetch(files: &[&File]) -> BTreeMap<PathBuf, String> {
    let mut packages: BTreeMap<&str, BTreeMap<PathBuf, Vec<&File>>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.has_arrived()) {
        packages.entry(file.registry.as_str()).or_default().entry(file.folder()).or_default().push(file);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = packages.into_values().map(|packages| scope.spawn(|| fetch_packages(packages))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the thread does not panic")).collect()
    })
}

fn fetch_packages(packages: BTreeMap<PathBuf, Vec<&File>>) -> Vec<(PathBuf, String)> {
    let failed = |(folder, files): (PathBuf, Vec<&File>)| fetch_package(&folder, &files).err().map(|why| (folder, why));
    packages.into_iter().filter_map(failed).collect()
}

fn fetch_package(folder: &Path, files: &[&File]) -> Result<(), String> {
    let mut command = Command::new(here().join("tests/published/fetch"));
    command
        .args([&files[0].registry, &files[0].package, &files[0].version])
        .arg(folder)
        .args(files.iter().map(|file| &file.path));
    let output = command.output().map_err(|error| format!("published/fetch cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{} {} cannot be fetched from {}: {last}", files[0].package, files[0].version, files[0].registry))
}

/// Converts a file, and checks its plan and that no key of it is lost.
fn judge(file: &File) -> Verdict {
    let content = match fs::read(file.folder().join(&file.path)) {
        Ok(content) => content,
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    let found = digest(&content);
    if found != file.digest {
        return Verdict::Failed(format!("it has the SHA-256 {found}, and the table says {}", file.digest));
    }
    let mut text = String::from_utf8(content).expect("workflows are UTF-8");
    if file.format == Format::Conductor {
        // A page that shows a definition.
        text = text
            .split("```json\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .expect("a block of JSON")
            .to_owned();
    }
    match support::accepted(file.format, &text, "published") {
        Err(refusal) if !file.refused.is_empty() && refusal.to_string().contains(&file.refused) => {
            Verdict::Passed(Vec::new())
        }
        Err(refusal) => Verdict::Failed(format!("it is refused: {refusal}")),
        Ok(_) if !file.refused.is_empty() => Verdict::Failed(format!("it is not refused: {}", file.refused)),
        Ok(conversion) => {
            let lost = support::lost_keys(file.format, &support::tree(&text));
            if lost.is_empty() {
                Verdict::Passed(conversion.left_out)
            } else {
                Verdict::Failed(format!("an invented key is lost in {}", lost.join(", ")))
            }
        }
    }
}

/// Compares how often what is left out with `published/left-out.txt`; `BELAY_UPDATE=1` writes it.
fn compare(left_out: &[(Format, String)]) -> Result<(), String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (format, what) in left_out {
        *counts.entry((format.name(), what)).or_default() += 1;
    }
    let mut lines: Vec<(&str, usize, &str)> =
        counts.into_iter().map(|((format, what), count)| (format, count, what)).collect();
    lines.sort_by_key(|(format, count, what)| (*format, usize::MAX - count, *what));
    let made: String = lines.into_iter().map(|(format, count, what)| format!("{format} {count} {what}\n")).collect();
    let file = here().join("tests/published/left-out.txt");
    if env::var_os("BELAY_UPDATE").is_some() {
        fs::write(&file, &made).map_err(|error| error.to_string())?;
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    if made == kept {
        Ok(())
    } else {
        Err(format!("published/left-out.txt says otherwise; BELAY_UPDATE=1 writes it:\n{made}"))
    }
}
