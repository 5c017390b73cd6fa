//! `belay completions`.

use std::io::Write as _;

use clap_complete::Shell;

use crate::{args::help, exit::Exit, failure::Failure};

/// Additions to the generated script for bash.
const BASH: &str = r#"
_belay_with_ids() {
    _belay "$@"
    local found
    found="$("$1" __complete 300ms --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)"
    if [[ -n "$found" ]]; then
        mapfile -t COMPREPLY <<< "$found"
    fi
}
"#;

/// Additions to the generated script for zsh.
const ZSH: &str = r#"
_belay_with_ids() {
    local -a found
    found=( "${(@f)$("${(Q)words[1]}" __complete 300ms -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}" )
    found=( ${found:#} )
    if (( ${#found} )); then
        compadd -a found
    else
        _belay "$@"
    fi
}
"#;

/// Additions to the generated script for fish.
const FISH: &str = r#"
function __belay_ids
    set -l words (commandline -opc)
    $words[1] __complete 300ms -- $words[2..] (commandline -ct) 2>/dev/null
end
complete -c belay -a "(__belay_ids)"
"#;

/// Print the script that completes commands and flags in a shell
///
/// In bash, zsh and fish also ids of executions, steps and approvals, and names of tools and namespaces: from a running server, within 300 ms.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay completions bash > ~/.local/share/bash-completion/completions/belay"))]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn completions(verb: Completions, belay: &mut clap::Command) -> Result<Exit, Failure> {
    let script = script(verb.shell, belay).ok_or_else(|| Failure::internal("the generated script is not as it was"))?;
    let mut output = std::io::stdout().lock();
    output.write_all(script.as_bytes())?;
    output.flush()?;
    Ok(Exit::OK)
}

/// The generated script, which calls the shell's part for ids. `None` where it is not as the part expects.
fn script(shell: Shell, belay: &mut clap::Command) -> Option<String> {
    // Into memory first: the generator panics where its output is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, belay, "belay", &mut script);
    let script = String::from_utf8(script).ok()?;
    match shell {
        Shell::Bash => {
            let calls = script.replace("complete -F _belay ", "complete -F _belay_with_ids ");
            (calls != script).then(|| with_part(&calls, "\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4", BASH))?
        }
        Shell::Zsh => {
            let (functions, end) = script.rsplit_once("\nif [ \"$funcstack[1]\" = \"_belay\" ]")?;
            let end = end
                .replace("_belay \"$@\"", "_belay_with_ids \"$@\"")
                .replace("compdef _belay ", "compdef _belay_with_ids ");
            Some(format!("{functions}{ZSH}\nif [ \"$funcstack[1]\" = \"_belay\" ]{end}"))
        }
        Shell::Fish => Some(script + FISH),
        _ => Some(script),
    }
}

/// The script with a part before its last line that begins like this.
fn with_part(script: &str, before: &str, part: &str) -> Option<String> {
    let place = script.rfind(before)?;
    let (functions, end) = script.split_at(place);
    Some(format!("{functions}{part}{end}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    // A new version of the generator may write other scripts.
    #[test]
    fn every_script_asks_for_ids_where_its_shell_can() {
        let bash = script(Shell::Bash, &mut Cli::command()).expect("the part has its place");
        assert!(bash.contains(BASH) && bash.matches("complete -F _belay_with_ids ").count() == 2);
        let zsh = script(Shell::Zsh, &mut Cli::command()).expect("the part has its place");
        assert!(
            zsh.contains(ZSH) && zsh.contains("compdef _belay_with_ids belay") && zsh.starts_with("#compdef belay")
        );
        assert!(script(Shell::Fish, &mut Cli::command()).is_some_and(|script| script.ends_with(FISH)));
        assert!(script(Shell::Elvish, &mut Cli::command()).is_some_and(|script| !script.contains("__complete")));
    }
}
