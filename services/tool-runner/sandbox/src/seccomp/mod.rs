//! Compiles rules on system calls to the BPF program that the kernel runs before each call.
//!
//! Every program starts with two guards, because the calls of other architectures and the x32 calls of x86_64 have other numbers and would
//! bypass the list. Calls are found by binary search.

mod policy;

use libc::sock_filter;

pub(crate) use policy::{for_command, for_init};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Bit 30 of a call number marks the x32 interface of x86_64; no other call has it set.
const X32: u32 = 0x4000_0000;

/// The action for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Allow,
    /// The call fails with this error.
    Fail(i32),
    /// The process dies with SIGSYS.
    Kill,
}

impl Action {
    fn encoded(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Fail(error) => libc::SECCOMP_RET_ERRNO | (error as u32 & libc::SECCOMP_RET_DATA),
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// A condition: `argument & mask == value`, or `!=` if not `equal`. Tests the low 32 bits only, because the kernel treats each tested
/// argument as an `int`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition {
    pub(crate) argument: u8,
    pub(crate) mask: u32,
    pub(crate) value: u32,
    pub(crate) equal: bool,
}

/// A rule for one call. Of several rules for a call, the first whose conditions all hold applies.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) call: u32,
    pub(crate) when: Vec<Condition>,
    pub(crate) then: Action,
}

/// Compiles a program. `otherwise` applies to calls without a matching rule.
pub(crate) fn compile(rules: &[Rule], otherwise: Action) -> Vec<sock_filter> {
    let mut sorted = rules.to_vec();
    sorted.sort_by_key(|rule| rule.call);
    let calls: Vec<&[Rule]> = sorted.chunk_by(|a, b| a.call == b.call).collect();

    let mut program = vec![
        load(offset::ARCHITECTURE),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        return_action(Action::Kill),
        load(offset::CALL),
        jump(libc::BPF_JSET, X32, 0, 1),
        return_action(Action::Kill),
    ];
    program.extend(search(&calls, otherwise));
    program
}

/// The offsets of the fields of `struct seccomp_data`, in bytes.
mod offset {
    pub(super) const CALL: u32 = 0;
    pub(super) const ARCHITECTURE: u32 = 4;
    pub(super) const ARGUMENTS: u32 = 16;
}

/// A block that returns on every path, so that blocks can be concatenated.
fn search(calls: &[&[Rule]], otherwise: Action) -> Vec<sock_filter> {
    match calls {
        [] => vec![return_action(otherwise)],
        [only] => {
            let body = body(only, otherwise);
            // A conditional jump reaches 255 instructions, an unconditional one all of them.
            let mut piece = vec![jump(libc::BPF_JEQ, only[0].call, 1, 0), skip(body.len() as u32)];
            piece.extend(body);
            piece.push(return_action(otherwise));
            piece
        }
        _ => {
            let (low, high) = calls.split_at(calls.len() / 2);
            let low = search(low, otherwise);
            let mut piece = vec![jump(libc::BPF_JGE, high[0][0].call, 0, 1), skip(low.len() as u32)];
            piece.extend(low);
            piece.extend(search(high, otherwise));
            piece
        }
    }
}

fn body(rules: &[Rule], otherwise: Action) -> Vec<sock_filter> {
    let mut body = Vec::new();
    for rule in rules {
        if rule.when.is_empty() {
            body.push(return_action(rule.then));
            return body;
        }
        for (n, condition) in rule.when.iter().enumerate() {
            // Skips the remaining conditions, three instructions each, and the return.
            let beyond = u8::try_from(3 * (rule.when.len() - n - 1) + 1).expect("a rule has a handful of conditions");
            // Both architectures are little-endian: the low half comes first.
            body.push(load(offset::ARGUMENTS + 8 * u32::from(condition.argument)));
            body.push(instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, condition.mask, 0, 0));
            let (holds, fails) = if condition.equal { (0, beyond) } else { (beyond, 0) };
            body.push(jump(libc::BPF_JEQ, condition.value, holds, fails));
        }
        body.push(return_action(rule.then));
    }
    body.push(return_action(otherwise));
    body
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn return_action(action: Action) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action.encoded(), 0, 0)
}

fn skip(distance: u32) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, distance, 0, 0)
}

fn jump(test: u32, value: u32, holds: u8, fails: u8) -> sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, value, holds, fails)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of the kernel's interpreter that the programs use.
    fn run(program: &[sock_filter], architecture: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [call.to_le_bytes(), architecture.to_le_bytes(), [0; 4], [0; 4]].concat();
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        let (mut at, mut register) = (0, 0_u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let branch = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    register = u32::from_le_bytes(*data[k as usize..].first_chunk().unwrap());
                }
                code if code == libc::BPF_ALU | libc::BPF_AND => register &= k,
                code if code == libc::BPF_JMP | libc::BPF_JA => at += k as usize,
                code if code == libc::BPF_JMP | libc::BPF_JEQ => at += branch(register == k),
                code if code == libc::BPF_JMP | libc::BPF_JGE => at += branch(register >= k),
                code if code == libc::BPF_JMP | libc::BPF_JSET => at += branch(register & k != 0),
                code if code == libc::BPF_RET => return k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    fn on(call: u32, then: Action) -> Rule {
        Rule { call, when: Vec::new(), then }
    }

    #[test]
    fn each_rule_applies_to_its_call_only() {
        for count in [0_u32, 1, 2, 3, 7, 100, 400] {
            let rules: Vec<Rule> = (0..count).map(|n| on(3 * n + 1, Action::Fail(n as i32 + 1))).collect();
            let program = compile(&rules, Action::Allow);
            for call in 0..3 * count + 3 {
                let expected =
                    if call % 3 == 1 && call / 3 < count { Action::Fail((call / 3) as i32 + 1) } else { Action::Allow };
                assert_eq!(
                    run(&program, ARCHITECTURE, call, [0; 6]),
                    expected.encoded(),
                    "call {call} of {count} rules"
                );
            }
        }
    }

    #[test]
    fn other_architectures_and_x32_are_killed_before_any_rule() {
        let program = compile(&[on(39, Action::Allow)], Action::Allow);
        const I386: u32 = 0x4000_0003;
        assert_eq!(run(&program, I386, 39, [0; 6]), Action::Kill.encoded());
        assert_eq!(run(&program, ARCHITECTURE, 39 | X32, [0; 6]), Action::Kill.encoded());
        assert_eq!(run(&program, ARCHITECTURE, 39, [0; 6]), Action::Allow.encoded());
    }

    #[test]
    fn conditions_are_tried_in_order_on_the_low_half_of_their_argument() {
        let when = |value, equal| vec![Condition { argument: 1, mask: 0xf0, value, equal }];
        let rules = [
            Rule { call: 5, when: when(0x10, true), then: Action::Fail(1) },
            Rule { call: 5, when: when(0x20, false), then: Action::Fail(2) },
        ];
        let program = compile(&rules, Action::Allow);
        let answer = |argument: u64| run(&program, ARCHITECTURE, 5, [0x10, argument, 0, 0, 0, 0]);
        assert_eq!(answer(0x1f), Action::Fail(1).encoded());
        assert_eq!(answer(0x3f), Action::Fail(2).encoded());
        assert_eq!(answer(0x2f), Action::Allow.encoded());
        assert_eq!(answer(0xffff_ffff_0000_001f), Action::Fail(1).encoded());
    }

    #[test]
    fn ordinary_calls_are_allowed_and_escapes_are_not() {
        let program = for_command(true);
        assert!(program.len() < 4096, "the kernel's limit");
        let call = |number: libc::c_long, arguments| run(&program, ARCHITECTURE, number as u32, arguments);
        let allowed = Action::Allow.encoded();
        let refused = Action::Fail(libc::EPERM).encoded();

        assert_eq!(call(libc::SYS_execve, [0; 6]), allowed);
        assert_eq!(call(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]), allowed);
        assert_eq!(call(libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0]), allowed);
        assert_eq!(call(libc::SYS_fchmodat, [0, 0, 0o755, 0, 0, 0]), allowed);
        assert_eq!(call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]), allowed);

        assert_eq!(call(libc::SYS_clone, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]), refused);
        assert_eq!(call(libc::SYS_fchmodat, [0, 0, 0o4755, 0, 0, 0]), refused);
        assert_eq!(call(libc::SYS_mknodat, [0, 0, u64::from(libc::S_IFCHR | 0o666), 0, 0, 0]), refused);
        assert_eq!(call(libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0]), refused);
        assert_eq!(call(libc::SYS_personality, [8, 0, 0, 0, 0, 0]), refused);
        assert_eq!(call(libc::SYS_mount, [0; 6]), refused);
        assert_eq!(call(libc::SYS_clone3, [0; 6]), Action::Fail(libc::ENOSYS).encoded());
    }

    #[test]
    fn preallocation_fails_and_deallocation_works() {
        let program = for_command(true);
        let call =
            |number: libc::c_long, argument: u64| run(&program, ARCHITECTURE, number as u32, [3, argument, 0, 0, 0, 0]);
        let unsupported = Action::Fail(libc::EOPNOTSUPP).encoded();
        let fallocate = |mode: i32| call(libc::SYS_fallocate, mode as u64);
        for mode in [
            0,
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
            libc::FALLOC_FL_UNSHARE_RANGE,
        ] {
            assert_eq!(fallocate(mode), unsupported, "{mode}");
        }
        for mode in [libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_COLLAPSE_RANGE] {
            assert_eq!(fallocate(mode), Action::Allow.encoded(), "{mode}");
        }
        // _IOW('X', 40, 42 and 57, struct space_resv), which is 48 bytes long.
        for number in [40, 42, 57] {
            let request = 1 << 30 | 48 << 16 | u64::from(b'X') << 8 | number;
            assert_eq!(call(libc::SYS_ioctl, request), unsupported, "{number}");
        }
        const FICLONE: u64 = 0x4004_9409;
        assert_eq!(call(libc::SYS_ioctl, FICLONE), Action::Allow.encoded(), "shared extents take no space");
    }

    #[test]
    fn a_rule_with_several_conditions_needs_all_of_them() {
        let on = |argument, value| Condition { argument, mask: u32::MAX, value, equal: true };
        let rules = [
            Rule { call: 5, when: vec![on(0, 1), on(1, 2), on(2, 3)], then: Action::Fail(1) },
            Rule { call: 5, when: vec![on(0, 1), on(1, 2)], then: Action::Fail(2) },
        ];
        let program = compile(&rules, Action::Allow);
        let answer = |arguments: [u64; 3]| {
            let [a, b, c] = arguments;
            run(&program, ARCHITECTURE, 5, [a, b, c, 0, 0, 0])
        };
        assert_eq!(answer([1, 2, 3]), Action::Fail(1).encoded());
        assert_eq!(answer([1, 2, 9]), Action::Fail(2).encoded());
        for other in [[9, 2, 3], [1, 9, 3], [0, 0, 0]] {
            assert_eq!(answer(other), Action::Allow.encoded(), "{other:?}");
        }
    }

    #[test]
    fn only_local_sockets_and_those_of_the_own_network_are_allowed() {
        let refused = Action::Fail(libc::EAFNOSUPPORT).encoded();
        let socket = |loopback: bool, call: libc::c_long, family: i32, protocol: i32| {
            run(&for_command(loopback), ARCHITECTURE, call as u32, [family as u64, 1, protocol as u64, 0, 0, 0])
        };
        let allowed = [
            (libc::AF_INET, 0),
            (libc::AF_INET, libc::IPPROTO_TCP),
            (libc::AF_INET6, libc::IPPROTO_UDP),
            (libc::AF_NETLINK, libc::NETLINK_ROUTE),
        ];
        for (family, protocol) in allowed {
            assert_eq!(
                socket(true, libc::SYS_socket, family, protocol),
                Action::Allow.encoded(),
                "{family} {protocol}"
            );
            // Without its own network these sockets are refused.
            assert_eq!(socket(false, libc::SYS_socket, family, protocol), refused, "{family} {protocol}");
            assert_eq!(socket(true, libc::SYS_socketpair, family, protocol), refused, "{family} {protocol}");
        }
        let never = [
            (libc::AF_PACKET, 0),
            (libc::AF_VSOCK, 0),
            (libc::AF_BLUETOOTH, 0),
            (libc::AF_ALG, 0),
            (libc::AF_INET, libc::IPPROTO_SCTP),
            (libc::AF_NETLINK, libc::NETLINK_AUDIT),
            (libc::AF_NETLINK, libc::NETLINK_NETFILTER),
            (libc::AF_NETLINK, libc::NETLINK_GENERIC),
        ];
        for (family, protocol) in never {
            for loopback in [true, false] {
                assert_eq!(socket(loopback, libc::SYS_socket, family, protocol), refused, "{family} {protocol}");
            }
        }
        for (call, loopback) in [(libc::SYS_socket, false), (libc::SYS_socketpair, true)] {
            assert_eq!(socket(loopback, call, libc::AF_UNIX, 0), Action::Allow.encoded());
        }
    }
}
