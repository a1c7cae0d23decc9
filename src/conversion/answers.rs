//! Values that a template leaves to its provider, and that no object has: the user gives each once.

use std::collections::BTreeMap;

use super::report::{ConversionRefusal, ConversionReport};

/// A value that a template leaves to its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateQuestion {
    /// The image of the VMs.
    Image,
    /// The subnet of the VMs.
    Subnet,
    /// The security groups that the provider adds, separated by commas.
    SecurityGroups,
    /// Size in GiB and type of the root volume, such as `20:gp3`.
    RootVolume,
    /// The zone of the VMs.
    Zone,
    /// The Secret with join data, in place of the object of a bootstrap provider.
    BootstrapSecret,
}

impl TemplateQuestion {
    /// The flag of the user for this value.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Image => "--image",
            Self::Subnet => "--subnet",
            Self::SecurityGroups => "--security-groups",
            Self::RootVolume => "--root-volume",
            Self::Zone => "--zone",
            Self::BootstrapSecret => "--bootstrap-secret",
        }
    }

    /// A name for its value.
    pub const fn value(self) -> &'static str {
        match self {
            Self::Image => "IMAGE",
            Self::Subnet => "SUBNET",
            Self::SecurityGroups => "GROUP,GROUP",
            Self::RootVolume => "SIZE:TYPE",
            Self::Zone => "ZONE",
            Self::BootstrapSecret => "SECRET",
        }
    }
}

/// One value for all objects, and values for single ones, by their names.
#[derive(Clone, Debug, Default, PartialEq)]
struct AnswerValues {
    all: Option<String>,
    single: BTreeMap<String, String>,
}

/// The answers of the user.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserAnswers(BTreeMap<TemplateQuestion, AnswerValues>);

impl UserAnswers {
    /// Adds `VALUE` or `NAME=VALUE`, as a flag has it.
    pub fn add(&mut self, question: TemplateQuestion, text: &str) {
        let answer = self.0.entry(question).or_default();
        match text.split_once('=') {
            Some((name, value)) => drop(answer.single.insert(name.to_owned(), value.to_owned())),
            None => answer.all = Some(text.to_owned()),
        }
    }

    /// The answer for an object.
    pub fn get(&self, question: TemplateQuestion, name: &str) -> Option<&str> {
        let answer = self.0.get(&question)?;
        let found = answer.single.get(name).or(answer.all.as_ref())?;
        Some(found.as_str()).filter(|found| !found.is_empty())
    }

    /// Refuses answers for objects that are not there.
    pub(super) fn check(&self, is_known: impl Fn(&str) -> bool) -> Vec<ConversionRefusal> {
        let mut refusals = Vec::new();
        for (question, answer) in &self.0 {
            for name in answer.single.keys().filter(|name| !is_known(name)) {
                let mut report = ConversionReport::new("flag", question.flag());
                let advice = format!("use the name of a template, pool or deployment, or {} alone", question.value());
                report.refuse("", format!("no object has the name {name}"), advice);
                refusals.extend(report.refusals);
            }
        }
        refusals
    }
}

impl ConversionReport {
    /// Refuses an object until a question is answered.
    pub(super) fn ask(&mut self, path: impl Into<String>, question: TemplateQuestion, reason: &str) {
        let (flag, value) = (question.flag(), question.value());
        self.refuse(path, reason, format!("pass {flag} {value}, or {flag} NAME={value} for each"));
    }
}
