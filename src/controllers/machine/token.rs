//! Bootstrap tokens: their IDs, and the placeholders in user data.

use mcm_api::{hash::fnv1a_64, machine::Machine};

/// Placeholder for `<id>.<secret>` in user data.
const TOKEN: &[u8] = b"<<BOOTSTRAP_TOKEN>>";
const TOKEN_ESCAPED: &[u8] = b"%3C%3CBOOTSTRAP_TOKEN%3E%3E";
/// Placeholder for the name of the Machine in user data.
const NAME: &[u8] = b"<<MACHINE_NAME>>";
const NAME_ESCAPED: &[u8] = b"%3C%3CMACHINE_NAME%3E%3E";

/// The longest name of a machine whose Node has a label with it.
pub const LONGEST_NAME: usize = 63;

/// Six characters of `[a-z0-9]`: a hash of the Machine's name and UID, so that two Machines hardly ever share a token.
pub fn id_of(machine: &Machine) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let meta = &machine.metadata;
    let text = [meta.name.as_deref().unwrap_or_default(), "/", meta.uid.as_deref().unwrap_or_default()];
    let mut hash = fnv1a_64(text.iter().flat_map(|part| part.bytes()));
    hash ^= hash >> 32;
    let mut id = String::with_capacity(6);
    for _ in 0..6 {
        let index = usize::try_from(hash % 36).unwrap_or_default();
        id.extend(ALPHABET.get(index).map(|byte| char::from(*byte)));
        hash /= 36;
    }
    id
}

/// ID of the token that the Go program makes for a Machine: the hex digits of three characters of its name. `None` for a
/// name with which it fails.
pub fn go_id_of(machine: &Machine) -> Option<String> {
    let name = machine.metadata.name.as_deref()?.as_bytes();
    let [.., first, second, third, _, _] = name else { return None };
    Some(format!("{first:02x}{second:02x}{third:02x}"))
}

/// The user data contains a placeholder for a token.
pub fn is_wanted(user_data: &[u8]) -> bool {
    contains(user_data, TOKEN) || contains(user_data, TOKEN_ESCAPED)
}

/// Substitutes all placeholders in user data. URL-escaped placeholders are substituted only where the plain form is
/// absent. Names and tokens consist of characters that URLs do not escape.
pub fn fill_in(user_data: &[u8], machine_name: &str, token: Option<&str>) -> Vec<u8> {
    let with_token = match token {
        Some(token) => replace_either(user_data, TOKEN, TOKEN_ESCAPED, token.as_bytes()),
        None => user_data.to_vec(),
    };
    replace_either(&with_token, NAME, NAME_ESCAPED, machine_name.as_bytes())
}

/// User data as they can be at a machine: with a token, and with the shortest and the longest name.
pub fn extremes_of(user_data: &[u8]) -> [Vec<u8>; 2] {
    const TOKEN_OF_MACHINE: &str = "abcdef.0123456789abcdef";
    ["m".to_owned(), "m".repeat(LONGEST_NAME)].map(|name| fill_in(user_data, &name, Some(TOKEN_OF_MACHINE)))
}

fn replace_either(text: &[u8], plain: &[u8], escaped: &[u8], value: &[u8]) -> Vec<u8> {
    replace(text, if contains(text, plain) { plain } else { escaped }, value)
}

fn replace(mut text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        if let Some(tail) = text.strip_prefix(from) {
            result.extend_from_slice(to);
            text = tail;
        } else {
            result.push(*first);
            text = rest;
        }
    }
    result
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn machine(name: &str, uid: &str) -> Machine {
        let mut machine = Machine::new(name, mcm_api::machine::MachineSpec::default());
        machine.metadata.uid = Some(uid.to_owned());
        machine
    }

    #[test]
    fn ids_are_six_safe_characters_even_for_short_names_and_differ_by_name_and_uid() {
        let mut ids = std::collections::BTreeSet::new();
        for name in ["", "a", "m-1", "m-2", "pool-z1-abcde-fghij"] {
            for uid in ["1", "2"] {
                let id = id_of(&machine(name, uid));
                assert!(id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
                ids.insert(id);
            }
        }
        assert_eq!(ids.len(), 10);
    }

    #[test]
    fn the_ids_of_the_go_program_are_known() {
        assert_eq!(go_id_of(&machine("pool-z1-abcde-fghij", "1")).as_deref(), Some("666768"));
        assert_eq!(go_id_of(&machine("m-1", "1")), None);
    }

    #[rstest]
    #[case::plain("a <<BOOTSTRAP_TOKEN>> b <<BOOTSTRAP_TOKEN>>", "a id.secret b id.secret")]
    #[case::escaped("a=%3C%3CBOOTSTRAP_TOKEN%3E%3E", "a=id.secret")]
    #[case::plain_wins("<<BOOTSTRAP_TOKEN>> %3C%3CBOOTSTRAP_TOKEN%3E%3E", "id.secret %3C%3CBOOTSTRAP_TOKEN%3E%3E")]
    #[case::name("host <<MACHINE_NAME>>", "host m-1")]
    #[case::neither("#!/bin/sh", "#!/bin/sh")]
    fn placeholders_are_filled_in(#[case] user_data: &str, #[case] expected: &str) {
        let filled = fill_in(user_data.as_bytes(), "m-1", Some("id.secret"));
        assert_eq!(String::from_utf8(filled).unwrap(), expected);
    }

    #[test]
    fn a_token_is_wanted_only_by_its_placeholder() {
        assert!(is_wanted(b"x<<BOOTSTRAP_TOKEN>>") && is_wanted(b"x%3C%3CBOOTSTRAP_TOKEN%3E%3Ex"));
        assert!(!is_wanted(b"<<MACHINE_NAME>>"));
        assert_eq!(fill_in(b"<<BOOTSTRAP_TOKEN>>", "m", None), b"<<BOOTSTRAP_TOKEN>>");
    }
}
