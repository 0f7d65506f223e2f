package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/provenance"
)

// addKeyring adds the flag that names the operator's keys.
func addKeyring(cmd *cobra.Command, keyring *string) {
	cmd.Flags().StringVar(keyring, "keyring", "", "the public keys that are known: a `FOLDER`, or a file with one")
}

// whatAKeyringIs is what help says of keyrings.
const whatAKeyringIs = `A keyring is a folder with an Ed25519 public key in each NAME.pem. Its file
keyring.yaml says which of them are trusted, and whose skills they sign (official,
first_party or community):

  release: {trusted: true, source: official}

A key that it does not name is known and no more, and so is the key in a single
file.`

// readKeyring reads the keyring that --keyring names.
func readKeyring(name string) (*provenance.Keyring, error) {
	if name == "" {
		return nil, errors.New("--keyring: expected a folder or a file with public keys, got an empty name")
	}
	ring, err := provenance.ReadKeyring(name)
	if err != nil {
		return nil, fmt.Errorf("--keyring: %w", err)
	}
	return ring, nil
}

// A signatureReport says how a skill's signature was found to be.
type signatureReport struct {
	Signed  bool   `json:"signed"`
	Reason  string `json:"reason,omitempty"` // why it is not
	Key     string `json:"key,omitempty"`    // its name in the keyring
	KeyID   string `json:"key_id,omitempty"`
	Trusted bool   `json:"trusted"`
	Source  string `json:"source"`
}

func signatureOf(key *provenance.Key, unsigned error) signatureReport {
	if key == nil {
		return signatureReport{Reason: unsigned.Error(), Source: "unknown"}
	}
	return signatureReport{Signed: true, Key: key.Name, KeyID: key.ID.String(), Trusted: key.Trusted, Source: key.Source.String()}
}

func newSkillVerify() *cobra.Command {
	var keyring string
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Tell whether a skill is signed, and by whom",
		Long: `Verify tells whether SIGNATURE.json in the skill's folder is a signature for just
the files that are there, by a key of the keyring; and what the keyring says of
that key. Nothing in the folder has a say in that.

` + whatAKeyringIs + `

Exit codes: 0 signed by a key of the keyring, 1 not signed, 2 wrong usage, a keyring
that cannot be used, or a folder that cannot be taken.`,
		Example: `  opa-gate skill verify skills/pdf --keyring keys
  opa-gate skill verify skills/pdf --keyring release.pem --format json`,
		Args: oneSkill,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("keyring") {
				return errors.New("skill verify needs the keys that you know: --keyring")
			}
			ring, err := readKeyring(keyring)
			if err != nil {
				return err
			}
			if err := notOfTheSkill(args[0], keyring); err != nil {
				return fmt.Errorf("--keyring: %w", err)
			}
			tree, err := provenance.ReadTree(args[0])
			if err != nil {
				return err
			}
			s := signatureOf(ring.Verify(tree))
			r := &report{label: "signed", colour: green, name: args[0], reason: s.Reason, lines: [][2]string{{"digest", tree.Digest.String()}},
				json: struct {
					Folder string            `json:"folder"`
					Digest provenance.Digest `json:"digest"`
					signatureReport
				}{args[0], tree.Digest, s}}
			if s.Signed {
				r.lines = append(r.lines, [2]string{"key", s.Key + " (" + s.KeyID + ")"}, [2]string{"trusted", yesNo(s.Trusted)}, [2]string{"source", s.Source})
			} else {
				r.label, r.colour = "not signed", red
			}
			if err := r.write(cmd, "", format.value); err != nil {
				return err
			}
			if !s.Signed {
				return exit(exitCheck)
			}
			return nil
		},
	}
	addKeyring(cmd, &keyring)
	format.add(cmd, "format", "how the verdict is written")
	return cmd
}

// notOfTheSkill refuses a file that is in the folder of the skill that it is to
// vouch for.
func notOfTheSkill(folder, file string) error {
	inside, err := provenance.Belongs(folder, file)
	if err != nil {
		return err
	}
	if inside {
		return fmt.Errorf("%s: %w", file, provenance.ErrSelfServing)
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
