//! Texts of a cloud in our errors: without secrets, short, and readable for programs that parse machine codes.

use crate::interface::SecretData;
use mcm_api::syntax::is_deceptive;

/// Longest text of a cloud that is passed on, in characters.
const LONGEST: usize = 1000;
/// Shorter values occur by accident.
const SHORTEST_SECRET: usize = 6;

/// Keys of Secrets whose values are locations. An error is of no use without them.
const PUBLIC: &[&str] = &[
    "roleARN",
    "workloadIdentityTokenFile",
    "projectID",
    "folderID",
    "endpointURL",
    "endpointUrl",
    "metalAPIURL",
    "authorityURL",
    "clientID",
    "azureClientId",
    "tenantID",
    "azureTenantId",
    "subscriptionID",
    "azureSubscriptionId",
    "authURL",
    "domainName",
    "domainID",
    "userDomainName",
    "userDomainID",
    "tenantName",
    "username",
    "applicationCredentialID",
    "applicationCredentialName",
];

/// A text of a cloud. Values of the Secret and lines of it are replaced by `***`, brackets by parentheses.
pub fn safe_text(text: &str, secret: &SecretData) -> String {
    let mut safe = text.to_owned();
    let secrets = secret.0.iter().filter(|(key, _)| !PUBLIC.contains(&key.as_str()));
    let values = secrets.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    // User data and keys with several lines may be shown line by line.
    let mut parts: Vec<&str> = values.flat_map(|value| value.lines().chain([value])).map(str::trim).collect();
    parts.retain(|part| part.len() >= SHORTEST_SECRET);
    // The longest first: a part of another one must not leave its rest.
    parts.sort_unstable_by_key(|part| std::cmp::Reverse(part.len()));
    for part in parts {
        if safe.contains(part) {
            safe = safe.replace(part, "***");
        }
    }
    let plain = |c: char| match c {
        '[' => '(',
        ']' => ')',
        c if is_deceptive(c) => ' ',
        c => c,
    };
    let short: String = safe.chars().take(LONGEST).map(plain).collect();
    if safe.chars().nth(LONGEST).is_some() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn secret(values: &[&str]) -> SecretData {
        SecretData(
            (0..).zip(values).map(|(key, value): (u8, _)| (key.to_string(), value.as_bytes().to_vec())).collect(),
        )
    }

    #[rstest]
    #[case("key AKIDEXAMPLE is unknown", "key *** is unknown")]
    #[case::lines("line: password=hunter2", "line: ***")]
    #[case::longest_first("AKIDEXAMPLE-2", "***")]
    #[case::short_values_are_words("the zone is a", "the zone is a")]
    #[case::brackets("a [b\nc", "a (b c")]
    fn texts_contain_no_secret_and_no_brackets(#[case] text: &str, #[case] expected: &str) {
        let secret = secret(&["AKIDEXAMPLE", "AKIDEXAMPLE-2", "#cloud-config\npassword=hunter2\n", "zone"]);
        assert_eq!(safe_text(text, &secret), expected);
    }

    #[rstest]
    #[case("roleARN", "arn:aws:iam::1:role/mcm", true)]
    #[case("tenantName", "my-project", true)]
    #[case("projectID", "my-project", true)]
    #[case("tenantName", "my-project", true)]
    #[case("folderID", "b1gfolder", true)]
    #[case("subscriptionID", "00000000-0000-4000-8000-000000000001", true)]
    #[case("secretAccessKey", "my-project", false)]
    fn names_of_roles_and_projects_are_no_secrets(#[case] key: &str, #[case] value: &str, #[case] is_shown: bool) {
        let secret = SecretData([(key.to_owned(), value.as_bytes().to_vec())].into());
        assert_eq!(safe_text(value, &secret) == value, is_shown);
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = safe_text(&"ä".repeat(2000), &SecretData::default());
        assert_eq!(text.chars().count(), 1001);
        assert!(text.ends_with('…'));
    }
}
