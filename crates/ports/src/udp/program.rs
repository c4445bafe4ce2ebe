//! Programs of classic BPF whose jumps are written with labels.
//!
//! Jumps lead forward only. A conditional jump reaches 255 instructions, an unconditional one any.

use crate::sys::{Instruction, bpf};

/// A place in a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

#[derive(Clone, Copy)]
enum Part {
    Done(Instruction),
    /// A comparison with `k`, and its targets; `None` is the next instruction.
    Branch(u16, u32, [Option<Label>; 2]),
    Go(Label),
}

/// A program that is being written.
#[derive(Default)]
pub(super) struct Program {
    parts: Vec<Part>,
    /// Index of the instruction behind each label, once it is placed.
    labels: Vec<Option<usize>>,
}

impl Program {
    /// Makes a label that is not placed yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label here.
    pub(super) fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.parts.len());
    }

    /// Adds instructions without jumps: operation and operand.
    pub(super) fn plain(&mut self, all: &[(u16, u32)]) {
        self.parts.extend(all.iter().map(|(code, k)| Part::Done(Instruction::new(*code, *k))));
    }

    /// Adds instructions whose jumps stay among them.
    pub(super) fn whole(&mut self, all: Vec<Instruction>) {
        self.parts.extend(all.into_iter().map(Part::Done));
    }

    /// Falls through if the comparison with `k` holds, else jumps to the label.
    pub(super) fn unless(&mut self, code: u16, k: u32, no: Label) {
        self.parts.push(Part::Branch(code, k, [None, Some(no)]));
    }

    /// Jumps to the label if the comparison with `k` holds, else falls through.
    pub(super) fn when(&mut self, code: u16, k: u32, yes: Label) {
        self.parts.push(Part::Branch(code, k, [Some(yes), None]));
    }

    /// Jumps to the label.
    pub(super) fn go(&mut self, label: Label) {
        self.parts.push(Part::Go(label));
    }

    pub(super) fn finish(self) -> Vec<Instruction> {
        let Self { parts, labels } = self;
        let over = |at: usize, label: Label| {
            let to = labels[label.0].expect("it was set");
            to.checked_sub(at + 1).expect("jumps lead forward")
        };
        let finish = |(at, part)| match part {
            Part::Done(instruction) => instruction,
            Part::Go(label) => {
                let over = u32::try_from(over(at, label)).expect("a program is short");
                Instruction::new(bpf::JUMP, over)
            }
            Part::Branch(code, k, to) => {
                let [yes, no] = to.map(|label| label.map_or(0, |label| over(at, label)));
                let near = |over| u8::try_from(over).expect("both stand in one part of it");
                Instruction::jump(code, k, near(yes), near(no))
            }
        };
        parts.into_iter().enumerate().map(finish).collect()
    }
}
