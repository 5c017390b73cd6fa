//! Measures Belay and a floor on the same machine in the same minutes, and reports the ratios.
//!
//! See README.md for what each figure means.

mod agents;
mod belay;
mod beside;
mod breakdown;
mod children;
mod crash;
mod floor;
mod held;
mod journalled;
mod launch;
mod looking;
mod memory;
mod model_server;
mod network;
mod parked;
mod peer;
mod place;
mod proc;
mod process;
mod report;
mod restate;
mod restate_programs;
mod rounds;
mod shapes;
mod strace;
mod subject;
mod table;
mod tools;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use belay_bench::stats;
use clap::{Parser, ValueEnum};

use memory::Client;
use place::Place;
use report::{Measurements, Report};
use restate_programs::Programs;
use rounds::Scale;
use subject::Load;

type Failure = Box<dyn Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

/// Measures Belay compared with the floor: latency, throughput, CPU, memory, flushes, recovery after a kill -9, and the launch of a sandbox.
#[derive(Debug, Parser)]
#[command(name = "belay-bench", after_help = "Example: cargo run --release -p belay-bench -- --quick")]
struct Settings {
    /// The number of rounds; the table has the medians of their ratios.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// A single small round: shows that everything works, not how fast it is.
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Measure only P1 to P7 and P10, beside the floor and beside another system, which is installed with npm and cargo when it is missing.
    #[arg(long, value_name = "SYSTEM",
          conflicts_with_all = ["load", "looking", "shapes", "parked", "held", "memory", "tools", "network", "children", "agents", "waiting_agents", "breakdown"])]
    beside: Option<Competitor>,
    /// Measure only this load (executions x steps), and write no result.json: for profiling, or to try a change.
    #[arg(long, value_name = "EXECUTIONSxSTEPS", value_parser = load, conflicts_with_all = ["quick", "check"])]
    load: Option<Load>,
    /// Measure only what looking at an execution costs it, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load"])]
    looking: bool,
    /// Measure only long and wide plans, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load", "looking", "parked"])]
    shapes: bool,
    /// Measure only what so many parked executions cost, and write no result.json.
    #[arg(long, value_name = "EXECUTIONS", value_parser = clap::value_parser!(u32).range(1000..=10_000_000),
          conflicts_with_all = ["quick", "check", "load", "looking"])]
    parked: Option<u32>,
    /// Measure only the memory of so many pending approvals, and write no result.json.
    #[arg(long, value_name = "APPROVALS", value_parser = clap::value_parser!(u32).range(100..=1_000_000),
          conflicts_with_all = ["quick", "check", "load", "looking", "parked"])]
    held: Option<u32>,
    /// Measure only whether memory levels off over 24 batches of 64 executions, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load", "looking"])]
    memory: bool,
    /// Measure only steps by what they do, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load", "looking", "shapes", "parked", "memory"])]
    tools: bool,
    /// Measure only bytes through the proxy of commands, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load", "looking", "shapes", "parked", "memory", "tools"])]
    network: bool,
    /// Measure only many small executions of a step's plan, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load", "looking", "shapes", "parked", "memory", "tools"])]
    children: bool,
    /// Measure only steps that a model carries out, and write no result.json.
    #[arg(long, conflicts_with_all = ["check", "load", "looking", "shapes", "parked", "memory", "tools", "children"])]
    agents: bool,
    /// Measure only what so many steps cost that a model carries out and that wait for a person in their hundredth turn, and write no result.json.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(10..=10_000),
          conflicts_with_all = ["quick", "check", "load", "looking", "parked", "agents"])]
    waiting_agents: Option<u32>,
    /// Measure only where the CPU time of a step goes, with perf, and write no result.json.
    #[arg(long, conflicts_with_all = ["quick", "check", "load", "looking", "shapes", "parked", "memory", "tools", "children"])]
    breakdown: bool,
    /// Exit with 1 when a target is missed. Times in milliseconds do not count, since they depend on the machine.
    #[arg(long)]
    check: bool,
    /// Where the programs are; without it the release folder, and those that are not there are built.
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// Where stores and result.json are kept, on a real disk; without it `bench` in the target folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The systems that Belay can be measured beside, apart from the floor.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Competitor {
    Restate,
}

fn main() -> ExitCode {
    // What the sandbox launches is this program, executed again.
    belay_sandbox::take_over_if_asked();
    // The proxy is the product's program, and is started only by a program that could be one as well.
    belay_proxy::take_over_if_asked();
    let settings = Settings::parse();
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(run(settings)),
        Err(error) => {
            eprintln!("error: no threads can be started: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(settings: Settings) -> ExitCode {
    let interrupted = async {
        // Dropping the measurement ends the processes it started. Without a handler the signal itself would end the bench.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let measured = tokio::select! {
        measured = measure(&settings) => measured,
        () = interrupted => return ExitCode::from(130),
    };
    match measured {
        Ok(false) if settings.check => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Measures and prints everything; returns whether every target is met.
async fn measure(settings: &Settings) -> Result<bool> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).ok_or("run the bench from the target folder, where cargo puts it")?;
    let binaries = match &settings.binaries {
        Some(folder) => folder.canonicalize().map_err(|error| format!("--binaries {}: {error}", folder.display()))?,
        None => built(target)?,
    };
    let root = settings.dir.clone().unwrap_or_else(|| target.join("bench"));
    let file_system = place::on_disk(&root)?;
    if settings.looking {
        for number in 0..usize::from(settings.rounds) {
            println!("{:?}", looking::measure(&binaries, &root, Scale::FULL.looking, number).await?);
        }
        return Ok(true);
    }
    if settings.shapes {
        for _ in 0..settings.rounds {
            println!("{:?}", shapes::measure(&binaries, &root, Scale::FULL.shapes).await?);
        }
        return Ok(true);
    }
    if let Some(executions) = settings.parked {
        for _ in 0..settings.rounds {
            println!("{:#?}", parked::measure(&binaries, &root, executions).await?);
        }
        return Ok(true);
    }
    if let Some(approvals) = settings.held {
        for _ in 0..settings.rounds {
            let held = held::measure(&binaries, &root, approvals).await?;
            let [gate, runner, executor] = held.bytes_of_one();
            println!("{held:?}");
            println!("bytes for each approval: gate {gate:.0}, runner {runner:.0}, executor {executor:.0}");
        }
        return Ok(true);
    }
    if settings.tools {
        for _ in 0..settings.rounds {
            println!("{:?}", tools::measure(&binaries, &root, Scale::FULL.tools).await?);
        }
        return Ok(true);
    }
    if settings.network {
        for _ in 0..settings.rounds {
            println!("{:?}", network::measure(&binaries)?);
        }
        return Ok(true);
    }
    if settings.children {
        for _ in 0..settings.rounds {
            println!("{:?}", children::measure(&binaries, &root, Scale::FULL.children).await?);
        }
        return Ok(true);
    }
    if settings.agents {
        let (count, scale) = if settings.quick { (1, Scale::QUICK) } else { (settings.rounds, Scale::FULL) };
        let mut rounds = Vec::new();
        for _ in 0..count {
            rounds.push(agents::measure(&binaries, &root, scale.agents).await?);
            println!("{:?}", rounds.last());
        }
        print!("\n{}", table::draw("floor", &report::agent_rows(&rounds)));
        return Ok(true);
    }
    if let Some(steps) = settings.waiting_agents {
        let scale = agents::Waiting { steps, ..Scale::FULL.agents.waiting };
        for _ in 0..settings.rounds {
            println!("{:?}", agents::waiting(&binaries, &root, scale).await?);
        }
        return Ok(true);
    }
    if settings.breakdown {
        let load = Load::of_nothing(64, 400);
        print!("{}", breakdown::draw(&breakdown::measure(&binaries, &root, Scale::FULL.warm_up, load).await?));
        return Ok(true);
    }
    if settings.memory {
        for client in [Client::Waiting, Client::Reading] {
            println!("{client:?} clients\nbatch   PSS in MiB: gate, runner, executor");
            let growth = memory::measure(&binaries, &root, Scale::FULL.memory, client, |number, of_each| {
                let of_each: String = of_each.iter().map(|kib| format!("{:9.1}", *kib as f64 / 1024.0)).collect();
                println!("{number:5} {of_each}");
            })
            .await?;
            println!(
                "at the start {:.1} MiB, at most {:.1} MiB, after 10 idle seconds {:.1} MiB; the last third of the batches has {:.2} x the one before",
                growth.idle_kib as f64 / 1024.0,
                growth.peak_kib as f64 / 1024.0,
                growth.afterwards_kib as f64 / 1024.0,
                growth.ratio().unwrap_or(f64::NAN)
            );
        }
        return Ok(true);
    }
    if let Some(load) = settings.load {
        return only(load, settings.rounds, &binaries, &root).await.map(|()| true);
    }
    let (rounds, scale) = if settings.quick { (1, Scale::QUICK) } else { (usize::from(settings.rounds), Scale::FULL) };

    let (restate, left_out) = match settings.beside {
        None => (None, None),
        Some(Competitor::Restate) => match programs(&root).await {
            Ok(programs) => (Some(programs), None),
            Err(why) => (None, Some(why)),
        },
    };
    if let Some(why) = &left_out {
        eprintln!("Going on without Restate: {why}");
    }

    eprintln!("Counting flushes");
    let flushes = rounds::flushes(&binaries, &root, scale).await?;
    let peer_flushes = match &restate {
        Some(programs) => Some(peer::flushes(programs, &root, scale).await?),
        None => None,
    };
    // What only the floor is compared with takes most of the time.
    let everything = settings.beside.is_none();
    let parked = if everything {
        eprintln!("Storing {} parked executions", scale.parked);
        Some(parked::measure(&binaries, &root, scale.parked).await?)
    } else {
        None
    };
    let mut measured = Measurements {
        rounds: Vec::new(),
        crashes: Vec::new(),
        flushes,
        launches: Vec::new(),
        networks: Vec::new(),
        beside: Vec::new(),
        looking: Vec::new(),
        shapes: Vec::new(),
        tools: Vec::new(),
        serving: Vec::new(),
        children: Vec::new(),
        agents: Vec::new(),
        parked,
        memory: None,
        read: None,
        peers: Vec::new(),
        peer_flushes,
    };
    for number in 0..rounds {
        eprintln!("Round {} of {rounds}", number + 1);
        measured.rounds.push(rounds::round(number, &binaries, &root, scale).await?);
        measured.crashes.push(crash::crash(&binaries, &Place::new(&root)?, scale.crash).await?);
        if everything {
            measured.launches.push(launch::launch(&binaries, &root, scale.launches)?);
            measured.networks.push(network::measure(&binaries)?);
            measured.beside.push(beside::measure(&binaries, &root, scale.beside).await?);
            measured.looking.push(looking::measure(&binaries, &root, scale.looking, number).await?);
            measured.tools.push(tools::measure(&binaries, &root, scale.tools).await?);
            measured.serving.push(rounds::serving(number, &binaries, &root, scale).await?);
            measured.children.push(children::measure(&binaries, &root, scale.children).await?);
            measured.agents.push(agents::measure(&binaries, &root, scale.agents).await?);
        }
        measured.shapes.push(shapes::measure(&binaries, &root, scale.shapes).await?);
        if let Some(programs) = &restate {
            measured.peers.push(peer::round(number, &binaries, programs, &root, scale).await?);
        }
    }

    if everything {
        eprintln!("Memory");
        measured.memory = Some(memory::measure(&binaries, &root, scale.memory, Client::Waiting, |_, _| {}).await?);
        measured.read = Some(memory::measure(&binaries, &root, scale.memory, Client::Reading, |_, _| {}).await?);
    }

    let (rows, peer_rows) = (report::rows(&measured), report::peer_rows(&measured));
    let cores = std::thread::available_parallelism()?.get();
    println!(
        "Belay and the floor. Rounds: {rounds}. Cores: {cores}. Disk: {file_system}. Programs: {}.\n",
        binaries.display()
    );
    print!("{}", table::draw("floor", &rows));
    if restate.is_some() {
        println!("\nBelay and Restate {}, in the same rounds.\n", restate_programs::VERSION);
        print!("{}", table::draw("restate", &peer_rows));
    }
    if let Some(why) = &left_out {
        println!("\nLeft out: Restate. {why}");
    }
    println!("\nEvery execution completed, and after each kill -9 every step was in Belay's history exactly once.");
    if let Some(repeated) = stats::median(measured.peers.iter().map(|peer| peer.crash.repeated as f64)) {
        println!("After a kill -9 with {} executions Restate ran {repeated} steps again.", scale.crash.executions);
    }
    let result = root.join("result.json");
    let report =
        Report { cores, file_system: &file_system, rows: &rows, peer_rows: &peer_rows, left_out, measured: &measured };
    fs::write(&result, serde_json::to_string_pretty(&report)?)
        .map_err(|error| format!("{}: {error}", result.display()))?;
    println!("Written to {}", result.display());
    Ok(!rows.iter().chain(&peer_rows).any(table::Row::fails))
}

/// Restate's programs, which have been seen to work here; or why they cannot be measured.
async fn programs(root: &Path) -> Result<Programs, String> {
    let folder = root.to_owned();
    let installed = tokio::task::spawn_blocking(move || restate_programs::install(&folder)).await;
    let programs = installed.map_err(|error| error.to_string())??;
    peer::check(&programs, root).await.map_err(|error| error.to_string())?;
    Ok(programs)
}

/// Measures one load only, with a line for each round.
async fn only(load: Load, rounds: u8, binaries: &Path, root: &Path) -> Result<()> {
    println!("round   steps/s: floor    belay  ratio   CPU µs/step: floor  belay  ratio");
    for number in 0..rounds {
        let [floor, belay] = rounds::only(number.into(), binaries, root, load).await?;
        let (slow, fast) = (belay.speed.steps_per_second, floor.speed.steps_per_second);
        let (most, least) = (belay.cpu_us_per_step, floor.cpu_us_per_step);
        let (speed, cpu) = (slow / fast, most / least);
        println!("{number:5} {fast:16.0} {slow:8.0} {speed:6.2} {least:20.1} {most:6.1} {cpu:6.2}");
    }
    Ok(())
}

fn load(text: &str) -> Result<Load, String> {
    let (executions, steps) = text.split_once('x').ok_or("write it as 64x200")?;
    match (executions.parse(), steps.parse()) {
        (Ok(executions @ 1..=1000), Ok(steps @ 1..=1000)) => Ok(Load::of_nothing(executions, steps)),
        _ => Err("both numbers lie between 1 and 1000".into()),
    }
}

/// The release folder, after building what is missing in it.
fn built(target: &Path) -> Result<PathBuf> {
    let folder = target.join("release");
    let programs = [("belay-cli", "belay"), ("belay-bench", "belay-floor")];
    let missing = programs.iter().filter(|(_, program)| !folder.join(program).exists());
    let arguments: Vec<&str> = missing.flat_map(|(package, program)| ["-p", package, "--bin", program]).collect();
    if !arguments.is_empty() {
        eprintln!("Building what is missing in {}", folder.display());
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build
            .args(["build", "--release", "--target-dir"])
            .arg(target)
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = build.status().map_err(|error| format!("cargo could not be started: {error}"))?;
        if !status.success() {
            return Err("the programs could not be built: see above".into());
        }
    }
    Ok(folder)
}
