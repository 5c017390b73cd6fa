//! The tools of servers, as they were when the runner first saw them.
//!
//! A server is started once to say what it has, in an empty workspace; what it says is kept in a file of the runner's, and is what plans, approvals and models
//! see from then on. Other settings of a server start it again.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use belay_json_schema::Schema;
use belay_mcp::{Definition, ServerIdentity};
use belay_proto::v1::{self, ErrorClass, tool_call_output::Stream};
use belay_reasons as reasons;
use belay_redaction::Redactor;
use belay_settings::McpServer;
use belay_sqlite::{Lane, Threads};
use belay_workspace::Workspace;
use data_encoding::HEXLOWER;
use futures::{FutureExt as _, future::join_all};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    names::{name, result_schema},
    server::{failed, with_server},
};
use crate::{Invocation, Output, Tool as _, ToolFailure, ViewHandle, tools::run_terminal::RunTerminal};

/// The longest name of a tool in plans.
const MAX_NAME: usize = 128;

/// The largest schemas of a tool, in bytes.
const MAX_SCHEMAS: usize = 64 << 10;

/// The most bytes of what a server says about its tools: the executor reads those of all servers at once.
const MAX_TOOLS_BYTES: usize = 1 << 20;

/// How much of what a server prints while it is listed is kept, in bytes.
const MAX_PRINTED: usize = 2_000;

/// A server with what is known of its tools.
pub(crate) struct ListedServer {
    pub(crate) server: McpServer,
    /// The tools that are offered.
    pub(crate) tools: Vec<Definition>,
    /// Where they are kept.
    pub(crate) kept_in: PathBuf,
    /// The server as it is shown.
    pub(crate) message: v1::ToolServer,
}

/// The list of a server's tools, as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The digest of the settings with which it was listed.
    settings: String,
    /// Its own name and version.
    identity: String,
    revision: String,
    tools: Vec<Definition>,
}

/// Lists servers, all at the same time; their tools are kept in `folder`. One that cannot be listed has no tools: why is logged.
pub(crate) async fn list<'a>(
    terminal: &RunTerminal,
    redactor: &Redactor,
    folder: &Path,
    servers: impl IntoIterator<Item = &'a McpServer>,
) -> Vec<ListedServer> {
    join_all(servers.into_iter().map(|server| one(terminal, redactor, folder, server))).await
}

async fn one(terminal: &RunTerminal, redactor: &Redactor, folder: &Path, server: &McpServer) -> ListedServer {
    let kept_in = folder.join(format!("{}.json", server.name));
    let listed = known_or_listed(terminal, folder, &kept_in, server).await;
    let message = v1::ToolServer { name: server.name.clone(), ..v1::ToolServer::default() };
    let (tools, message) = match listed {
        Ok(Kept { identity, revision, tools, .. }) => (tools, v1::ToolServer { identity, revision, ..message }),
        Err(failure) => {
            // It may have what the server has printed.
            let problem = redactor.redact_text(&failure.message).text;
            tracing::warn!(server = server.name, "The tools of an MCP server are not offered: {problem}");
            (Vec::new(), v1::ToolServer { problem, ..message })
        }
    };
    ListedServer { tools: offered(server, tools), server: server.clone(), kept_in, message }
}

/// The kept list of a server; of one that is new, or has other settings, its list now, which is kept from then on. A list that cannot be read or kept is no
/// reason to take another one: it is what people have allowed.
async fn known_or_listed(
    terminal: &RunTerminal,
    folder: &Path,
    kept_in: &Path,
    server: &McpServer,
) -> Result<Kept, ToolFailure> {
    let cannot = |what: &str, error: io::Error| {
        let file = kept_in.display();
        let message = format!("The list of its tools cannot be {what}: {file}: {error}.");
        ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, message)
    };
    let settings = digest(server);
    let known =
        read(kept_in).map_err(|error| cannot("read (remove the file to take what the server has now)", error))?;
    if let Some(kept) = known.filter(|kept| kept.settings == settings) {
        return Ok(kept);
    }
    let (ServerIdentity { name, version, revision }, tools) = ask(terminal, folder, server).await?;
    tracing::info!(server = server.name, %revision, tools = tools.len(), "An MCP server was listed: {name} {version}");
    let identity = format!("{name} {version}").trim().to_owned();
    let kept = Kept { settings, identity, revision, tools };
    write(kept_in, &kept).map_err(|error| cannot("kept", error))?;
    Ok(kept)
}

/// The tools that plans can call: those that the operator wants, as far as they have names and schemas that can be used.
fn offered(server: &McpServer, tools: Vec<Definition>) -> Vec<Definition> {
    let missing = |wanted: &&String| !tools.iter().any(|tool| tool.name == **wanted);
    if !tools.is_empty() {
        for wanted in server.tools.iter().flatten().chain(&server.read_only).filter(missing) {
            tracing::warn!(server = server.name, tool = wanted, "The MCP server has no tool of this name");
        }
    }
    let (mut seen, mut bytes) = (BTreeSet::new(), 0);
    let problem = |tool: &Definition| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let full = name(&server.name, &tool.name);
        if tool.name.is_empty() || full.len() > MAX_NAME || !tool.name.chars().all(is_plain) {
            return Some(format!(
                "its name is not one that plans can have: 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`, with that of the server"
            ));
        }
        if tool.parameters["type"] != "object" {
            return Some("its arguments are no object".to_owned());
        }
        let bytes = schema_bytes(tool);
        if bytes > MAX_SCHEMAS {
            return Some(format!("its schemas have {bytes} bytes, and the limit is {MAX_SCHEMAS}"));
        }
        let schemas = [("parameters", tool.parameters.to_string()), ("result", result_schema(tool))];
        schemas
            .into_iter()
            .find_map(|(part, text)| Schema::new(&text).err().map(|error| format!("its {part}: {error}")))
    };
    tools
        .into_iter()
        .filter(|tool| server.offers(&tool.name))
        .filter(|tool| match problem(tool) {
            None => true,
            Some(problem) => {
                tracing::warn!(
                    server = server.name,
                    tool = tool.name,
                    "A tool of an MCP server is not offered: {problem}"
                );
                false
            }
        })
        // Of two with one name, the first.
        .filter(|tool| seen.insert(tool.name.clone()))
        .filter(|tool| {
            bytes += tool.title.len() + tool.description.len() + schema_bytes(tool);
            if bytes > MAX_TOOLS_BYTES {
                tracing::warn!(
                    server = server.name,
                    tool = tool.name,
                    "A tool of an MCP server is not offered: those before it have {MAX_TOOLS_BYTES} bytes"
                );
            }
            bytes <= MAX_TOOLS_BYTES
        })
        .collect()
}

/// The size of a tool's schemas.
fn schema_bytes(tool: &Definition) -> usize {
    [Some(&tool.parameters), tool.result.as_ref()].into_iter().flatten().map(|schema| schema.to_string().len()).sum()
}

/// Starts a server in an empty workspace, and asks what it has.
async fn ask(
    terminal: &RunTerminal,
    folder: &Path,
    server: &McpServer,
) -> Result<(ServerIdentity, Vec<Definition>), ToolFailure> {
    let workspace = EmptyWorkspace::new(&folder.join(format!("listing-{}", server.name)))
        .map_err(|error| ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, error.to_string()))?;
    let printed = Arc::new(PrintedOutput::default());
    let network = terminal.network(server.network.as_deref()).map_err(|problem| {
        ToolFailure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, problem.in_words())
    })?;
    let invocation = Invocation {
        network,
        limit: server.start_timeout * 2,
        ..Invocation::of_runner(Some(workspace.view.clone()), Arc::clone(&printed) as Arc<dyn Output>)
    };
    let (ran, done) = with_server(terminal, server, None, invocation, |session| {
        async move { session.tools().await.map(|tools| (session.server(), tools)) }.boxed()
    })
    .await?;
    match done {
        Some(Ok(listed)) => Ok(listed),
        other => {
            let failure = failed(server, ran, other.and_then(Result::err));
            let said = printed.end();
            let message =
                if said.is_empty() { failure.message } else { format!("{} It printed: {said}", failure.message) };
            Err(ToolFailure { message, ..failure })
        }
    }
}

/// An empty workspace, removed when it is dropped.
struct EmptyWorkspace {
    root: PathBuf,
    view: ViewHandle,
}

impl EmptyWorkspace {
    fn new(root: &Path) -> io::Result<Self> {
        // Left by a process that was killed.
        let _ = fs::remove_dir_all(root);
        if let Some(parent) = root.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        // Not one that another user has made.
        fs::DirBuilder::new().mode(0o700).create(root)?;
        let made = Workspace::open(root, &[]).map_err(io::Error::other);
        let view = made.and_then(|workspace| workspace.view("listing").map_err(io::Error::other));
        match view {
            Ok(view) => {
                Ok(Self { root: root.to_owned(), view: ViewHandle::new(Box::new(view), Lane::new(Threads::Real, 1)) })
            }
            Err(error) => {
                let _ = fs::remove_dir_all(root);
                Err(error)
            }
        }
    }
}

impl Drop for EmptyWorkspace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(%error, folder = %self.root.display(), "Cannot remove the workspace in which an MCP server was listed");
        }
    }
}

/// The end of what a server prints while it is listed, and the values of credentials that are not to be seen there.
#[derive(Default)]
struct PrintedOutput(Mutex<(Vec<u8>, Vec<String>)>);

impl PrintedOutput {
    fn end(&self) -> String {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (printed, hidden) = &*held;
        let text = String::from_utf8_lossy(printed).trim().to_owned();
        hidden.iter().filter(|value| !value.is_empty()).fold(text, |text, value| text.replace(value, "[REDACTED]"))
    }
}

impl Output for PrintedOutput {
    fn write(&self, _stream: Stream, bytes: &[u8]) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (printed, _) = &mut *held;
        printed.extend_from_slice(bytes);
        let over = printed.len().saturating_sub(MAX_PRINTED);
        printed.drain(..over);
    }

    fn hide(&self, values: &[String]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.extend_from_slice(values);
    }
}

/// The digest of the settings that decide what a server has.
fn digest(server: &McpServer) -> String {
    let McpServer { command, cwd, env, network, reveals, .. } = server;
    let parts = serde_json::json!([command, cwd, env, network, reveals]);
    HEXLOWER.encode(&Sha256::digest(parts.to_string()))
}

/// Reads what is kept; `None` when there is no file.
fn read(file: &Path) -> io::Result<Option<Kept>> {
    match fs::read(file) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the file as a whole, or not at all.
fn write(file: &Path, kept: &Kept) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = file.with_extension("new");
    let text = serde_json::to_vec_pretty(kept).map_err(io::Error::other)?;
    let mut open = fs::OpenOptions::new();
    let mut written = open.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    io::Write::write_all(&mut written, &text)?;
    written.sync_all()?;
    fs::rename(&new, file)?;
    fs::File::open(folder)?.sync_all()
}
