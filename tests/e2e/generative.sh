#!/bin/bash
# Models that make pictures: the mean validation loss over five seeds is within 3 % of PyTorch's
# for the autoencoder and within 5 % for the diffusion model, whose loss varies by 3 % from seed to
# seed (tests/reference/*_digits.py record them); both make pictures whose grey is that of the digits.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
# like_torch MODEL BAR OPTION...: the mean validation loss of five seeds is that of PyTorch's.
like_torch() {
  local model=$1 bar=$2 seed
  shift 2
  for seed in 1 2 3 4 5; do
    "$dnnc" run "$root/models/$model.dnn" "$@" --data "$root" --seed $seed --json --quiet >out.json 2>err ||
      { cat err; fail "$model with seed $seed"; }
    field validation_loss out.json
  done >losses
  awk -v bar="$bar" -v model="$model" 'FNR == NR { if ($1 != "#") { torch += $2; n++ } next } { own += $1; m++ }
    END { if (n != 5 || m != 5) exit 1
      own /= m; torch /= n; d = own / torch - 1
      printf "%s: mean validation loss of five seeds %.4f, of PyTorch %.4f\n", model, own, torch
      exit !(d < bar && d > -bar) }' "$root/tests/reference/$model.txt" losses ||
    { cat losses; fail "$model is not within $bar of PyTorch"; }
}
like_torch vae_digits 0.03

# grey FILE LOW HIGH: the mean over 100 pictures, of 64 numbers each.
grey() {
  awk -F, -v low="$2" -v high="$3" 'NF == 64 { for (i = 1; i <= 64; i++) sum += $i; n++ }
    END { mean = n ? sum / n / 64 : 0; print FILENAME ": mean grey", mean
      exit !(n == 100 && mean > low && mean < high) }' "$1" || fail "no pictures of digits in $1"
  [ "$(sort -u "$1" | wc -l)" = 100 ] || fail "pictures of $1 repeat"
}
pictures() { # NET LOW HIGH: of the digits the mean is 0.305 of black to white
  "$dnnc" predict "$root/models/$1_digits.dnn" --data "$root" --load "$1.ckpt" --quiet \
    --value "$1[1]" generate=true --count 100 -o "$1.csv" || fail "pictures of $1"
  grey "$1.csv" "$2" "$3"
}
pictures vae 0.25 0.36
like_torch diffusion_digits 0.05 epochs=20
pictures diffusion -0.65 -0.15
