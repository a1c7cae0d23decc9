//! The texts of waits, for all answers. Pure.

/// The end of the text of a wait for a budget that allows no eviction although all its pods are healthy.
pub const NEVER: &str = ", which it never does: lower its minAvailable, raise its maxUnavailable, or add replicas";

/// The text of a wait without the form that errors of the cloud have in a status.
pub fn cleaned(text: &str) -> String {
    let Some((code, message)) = error_of_cloud(text) else { return text.to_owned() };
    let before = text.split_once("machine codes error: ").map_or("", |(before, _)| before);
    format!("{before}{code}: {message}")
}

/// Code and message of an error of the cloud, in the form that it has in a status.
pub fn error_of_cloud(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("error: code = [")?;
    let (code, rest) = rest.split_once("] message = [")?;
    Some((code, rest.rsplit_once(']').map_or(rest, |(message, _)| message)))
}
