//! Flags that answer the questions that the template of another provider leaves open.

use clap::Args;

use mcm_conversion::{TemplateQuestion, UserAnswers};

/// Values that the template of another provider leaves to it. Each is one value for all templates, or NAME=VALUE for the
/// template or pool of that name.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Values that a template leaves to its provider; NAME=VALUE for one template, repeated")]
pub struct AnswerOptions {
    /// Image of the VMs, where the provider looks it up by the version of Kubernetes
    #[arg(long, value_name = "[NAME=]IMAGE")]
    image: Vec<String>,
    /// Subnet of the VMs, where the provider chooses one
    #[arg(long, value_name = "[NAME=]SUBNET")]
    subnet: Vec<String>,
    /// Security groups that the provider finds by role or filter, separated by commas
    #[arg(long, value_name = "[NAME=]GROUP,GROUP")]
    security_groups: Vec<String>,
    /// Size in GiB and type of the root volume, where the provider takes them from the image, such as 20:gp3
    #[arg(long, value_name = "[NAME=]SIZE:TYPE")]
    root_volume: Vec<String>,
    /// Zone of the VMs, where the provider takes the first one of the region
    #[arg(long, value_name = "[NAME=]ZONE")]
    zone: Vec<String>,
}

impl AnswerOptions {
    /// The user's part of a conversion, from the flags.
    pub fn answers(&self) -> UserAnswers {
        let mut answers = UserAnswers::default();
        for (question, given) in [
            (TemplateQuestion::Image, &self.image),
            (TemplateQuestion::Subnet, &self.subnet),
            (TemplateQuestion::SecurityGroups, &self.security_groups),
            (TemplateQuestion::RootVolume, &self.root_volume),
            (TemplateQuestion::Zone, &self.zone),
        ] {
            given.iter().for_each(|text| answers.add(question, text));
        }
        answers
    }
}
