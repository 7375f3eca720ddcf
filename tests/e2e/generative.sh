#!/bin/bash
# Models that make pictures: the mean validation loss of the autoencoder over five seeds
# is within 3 % of PyTorch's (tests/reference/vae_digits.py records it); both models
# make pictures whose grey is that of the digits.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
for seed in 1 2 3 4 5; do
  "$dnnc" run "$root/models/vae_digits.dnn" --data "$root" --seed $seed --json --quiet >out.json 2>err ||
    { cat err; fail "vae_digits with seed $seed"; }
  field validation_loss out.json
done >losses
awk -v bar=0.03 'FNR == NR { if ($1 != "#") { torch += $2; n++ } next } { own += $1; m++ }
  END { if (n != 5 || m != 5) exit 1
    own /= m; torch /= n; d = own / torch - 1
    printf "mean validation loss of five seeds %.4f, of PyTorch %.4f\n", own, torch
    exit !(d < bar && d > -bar) }' "$root/tests/reference/vae_digits.txt" losses ||
  { cat losses; fail "not within 3 % of PyTorch"; }

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
"$dnnc" run "$root/models/diffusion_digits.dnn" epochs=20 --data "$root" --json --quiet >out.json 2>err ||
  { cat err; fail "diffusion_digits"; }
loss=$(field validation_loss out.json)
echo "diffusion: loss $loss"
awk -v l="$loss" 'BEGIN { exit !(l < 0.45) }' || fail "the noise is not found: $loss"
pictures diffusion -0.65 -0.15
