//! Kinds of fields that classes of several clouds have.

use serde_json::Value;

use crate::spec::{ClassProblems, FieldReader, ScalarType, found, text};

/// A text; an empty one counts as absent.
pub fn filled(fields: &mut FieldReader<'_>, name: &'static str) -> Option<String> {
    fields.optional(name, &text()).filter(|text| !text.is_empty())
}

/// One of a few texts; an empty one counts as absent.
pub fn choice(fields: &mut FieldReader<'_>, name: &'static str, choices: &'static [&'static str]) -> Option<String> {
    let parse =
        move |value: &Value| value.as_str().filter(|text| text.is_empty() || choices.contains(text)).map(str::to_owned);
    fields.optional(name, &ScalarType::new(one_of_text(choices), parse)).filter(|text| !text.is_empty())
}

/// One of a few texts. Another text is a warning, because the cloud may be newer than this program. An empty text
/// counts as absent.
pub fn known(fields: &mut FieldReader<'_>, name: &'static str, choices: &'static [&'static str]) -> Option<String> {
    warn_of_unknown(fields, name, choices);
    let parse = |value: &Value| value.as_str().map(str::to_owned);
    fields.optional(name, &ScalarType::new(one_of_text(choices), parse)).filter(|text| !text.is_empty())
}

/// The same, and it must be there.
pub fn required_known(
    fields: &mut FieldReader<'_>,
    name: &'static str,
    choices: &'static [&'static str],
) -> Option<String> {
    warn_of_unknown(fields, name, choices);
    let parse = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    fields.required(name, &ScalarType::new(one_of_text(choices), parse))
}

fn warn_of_unknown(fields: &mut FieldReader<'_>, name: &'static str, choices: &'static [&'static str]) {
    let warn = |path: &str, value: &Value, problems: &mut ClassProblems| {
        let text = value.as_str().filter(|text| !text.is_empty() && !choices.contains(text))?;
        let text = found(&Value::from(text));
        problems.warning(path, format!("{text} is none of {}: sent to the cloud as it is", choices.join(", ")));
        None::<()>
    };
    fields.with(name, warn);
}

fn one_of_text(choices: &[&str]) -> String {
    format!("one of {}", choices.join(", "))
}

/// A whole number in a range, both ends included. The largest of its type is no limit.
pub fn number<N>(least: N, most: N) -> ScalarType<N>
where
    N: Copy + PartialOrd + std::fmt::Display + TryFrom<i64> + Into<i64> + 'static,
{
    let is_open = most.into() >= i64::from(i32::MAX);
    let expected = if is_open {
        format!("a whole number of at least {least}")
    } else {
        format!("a whole number from {least} to {most}")
    };
    let parse = move |value: &Value| N::try_from(value.as_i64()?).ok().filter(|number| (least..=most).contains(number));
    ScalarType::new(expected, parse)
}

/// A text is letters, digits and hyphens only, so that it cannot lead a URL elsewhere.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
