//! `belay store stats`.

use belay_all_in_one::{MeasuredStore, Sizes};
use serde_json::{Map, Value, json};

use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::text::{Line, Style},
};

/// Show how large the stores and workspaces in the state directory are, and what is in them
///
/// Works beside a running server, and changes nothing. Reads all of the stores. With -o json, each table has its size.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay store stats --state-dir /var/lib/belay"))]
pub(crate) struct Stats {}

/// Measures the state directory.
pub(crate) async fn stats(context: &Context, _: Stats) -> Result<Exit, Failure> {
    let state_dir = context.target.state_dir()?;
    let sizes = tokio::task::spawn_blocking(move || belay_all_in_one::measure_stores(&state_dir))
        .await
        .map_err(|error| Failure::internal(format!("measuring ended early: {error}")))??;
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&sizes))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&as_json(&sizes))?,
    }
    Ok(Exit::OK)
}

/// The bytes of a store's files.
fn bytes(store: &MeasuredStore) -> u64 {
    store.size.as_ref().map_or(0, |size| size.file_bytes + size.log_bytes)
}

fn total(sizes: &Sizes) -> u64 {
    sizes.stores.iter().map(bytes).sum::<u64>() + sizes.blob_bytes + sizes.workspace_bytes
}

fn lines(sizes: &Sizes) -> Vec<Line> {
    let width =
        sizes.stores.iter().map(|store| store.path.display().to_string().chars().count()).max().unwrap_or(0) + 2;
    let row = |what: String, size: String, holds: String| {
        Line::default().column(Style::Plain, what, width).column(Style::Strong, size, 11).and(Style::Plain, holds)
    };
    let mut lines = Vec::new();
    for store in &sizes.stores {
        let path = store.path.display().to_string();
        let Some(size) = &store.size else {
            lines.push(row(path, "-".to_owned(), "there is none".to_owned()));
            continue;
        };
        let mut holds: Vec<String> =
            size.counts.iter().filter(|(name, count)| *count > 0 || !is_rare(name)).map(counted).collect();
        if size.free_bytes > 0 {
            holds.push(format!("{} free, for the next rows", shown(size.free_bytes)));
        }
        lines.push(row(path, shown(bytes(store)), holds.join(", ")));
    }
    if sizes.blob_files > 0 {
        let files = if sizes.blob_files == 1 { "1 file".to_owned() } else { format!("{} files", sizes.blob_files) };
        lines.push(row(sizes.blobs.display().to_string(), shown(sizes.blob_bytes), format!("{files} of large values")));
    }
    let made = format!(
        "{} made for executions",
        if sizes.workspace_count == 1 {
            "1 directory".to_owned()
        } else {
            format!("{} directories", sizes.workspace_count)
        }
    );
    lines.push(row(sizes.workspaces.display().to_string(), shown(sizes.workspace_bytes), made));
    lines.push(row("total".to_owned(), shown(total(sizes)), String::new()));
    lines
}

/// Whether a row is left out when there is none of it.
fn is_rare(name: &str) -> bool {
    matches!(name, "unfinished" | "deletions" | "waiting" | "pending" | "grants")
}

fn counted((name, count): &(&'static str, u64)) -> String {
    let one = |plural: &str| plural.strip_suffix('s').unwrap_or(plural).to_owned();
    match (*name, *count) {
        ("deletions", count) => format!("{count} being deleted"),
        ("waiting", count) => format!("{count} waiting for approval"),
        (name @ ("unfinished" | "pending"), count) => format!("{count} {name}"),
        (name, 1) => format!("1 {}", one(name)),
        (name, count) => format!("{count} {name}"),
    }
}

/// A size in the largest unit that fits, with one decimal.
fn shown(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (bytes.saturating_mul(10) / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

fn as_json(sizes: &Sizes) -> Value {
    let stores = sizes.stores.iter().map(|store| match &store.size {
        None => json!({ "path": store.path, "exists": false }),
        Some(size) => {
            let counts: Map<String, Value> =
                size.counts.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
            let tables: Map<String, Value> =
                size.tables.iter().map(|(name, bytes)| (name.clone(), json!(bytes))).collect();
            json!({
                "path": store.path,
                "exists": true,
                "fileBytes": size.file_bytes,
                "logBytes": size.log_bytes,
                "freeBytes": size.free_bytes,
                "counts": counts,
                "tableBytes": tables,
            })
        }
    });
    json!({
        "stores": stores.collect::<Vec<_>>(),
        "blobs": {
            "path": sizes.blobs,
            "files": sizes.blob_files,
            "bytes": sizes.blob_bytes,
        },
        "workspaces": {
            "path": sizes.workspaces,
            "count": sizes.workspace_count,
            "bytes": sizes.workspace_bytes,
        },
        "totalBytes": total(sizes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_counts_are_words() {
        let sizes = [0, 1023, 1024, 1536, 1 << 20, 10 * (1 << 20) + (1 << 19), 1 << 40, 5 << 50].map(shown);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "10.5 MiB", "1.0 TiB", "5120.0 TiB"]);
        let counts = [("executions", 1), ("events", 7), ("pending", 1), ("waiting", 2), ("deletions", 3)];
        let words = ["1 execution", "7 events", "1 pending", "2 waiting for approval", "3 being deleted"];
        assert_eq!(counts.map(|count| counted(&count)), words);
    }
}
